/* held.cuh - the walk of a row that is held in registers from its load to its store. A kernel of
 * such rows is three choices:
 *
 * Rows: how elements arrive and leave (launch_rows.cuh).
 *
 * Statistic: what a row adds up. statistic/max_sum.cuh says what each of its functions is for;
 * gradient_sum.cuh and running_pair.cuh are the others. Operations with one statistic share
 * kernels.
 *
 * Team: who shares a row (team/). Its threads meet twice. Before the exponentials, those near each
 * other exchange what they must know of the row, and so share a reference. After the sums, all who
 * share the row exchange what each near group knows.
 *
 *   row(), chunk<K>()      this thread's row, and the first of its K chunks there
 *   STRIDE                 from one of its chunks to the next
 *   near(part)             the value of the part that this thread's near group has together
 *   far(own, sum, make)    merges whole(own, sum) of all near groups, and gives make(the merged
 * one); where all are near it gives whole(own, sum) leaves()               whether this thread has
 * nothing to do writes()               whether this thread writes the value of its row sums how a
 * thread adds up its exponentials CHECK_ROW              whether the row may lie after the last one
 *   ONE_REFERENCE          whether all that share a row are near
 *   FETCHES                whether later rows are fetched ahead
 *   STREAM                 whether results go past the caches */
#ifndef ONS_HELD_CUH
#define ONS_HELD_CUH

#include "../rows/contiguous.cuh"
#include "../statistic/max_sum.cuh"

template <typename Ops, typename Rows, int K, typename Statistic = typename Ops::statistic,
          typename Team>
__device__ __forceinline__ void held(const typename Rows::arguments &args, Team &team) {
    using Real = typename Rows::Real;
    constexpr int STRIDE = Team::STRIDE;
    const auto index = team.row();
    const auto chunk = team.template chunk<K>();
    const auto row = Rows::template row<Team::CHECK_ROW>(args, index);
    if (team.leaves()) return;
    const auto tile = Statistic::as_held(row.template load<K, STRIDE>(chunk));
    [[maybe_unused]] Real x[K * Rows::V], excluded = 0;
    const auto first = Statistic::part(tile);
    if constexpr (Team::FETCHES) Rows::template ahead<K>(args, index, team.warp());
    const auto own = team.near(first);
    auto store = [&](const auto &results, Real of_excluded) {
        row.template store<K, STRIDE, Team::STREAM>(chunk, results, tile.allowed(), of_excluded);
    };
    with_operation<Ops>(args.operation(), [&](auto op) {
        using Op = decltype(op);
        const auto sum = team.near(Statistic::template sum<Op, typename Team::sums>(tile, own, x));
        const auto of_row = team.far(
            own, sum, [&](const auto &whole) { return Statistic::template of_row<Op>(whole); });
        if constexpr (Ops::ONE_A_ROW) {
            put_value<Op>(args, index, team.writes(), row, of_row);
        } else if constexpr (Statistic::FILLS_X) {
            Statistic::template finish<Op, Team::ONE_REFERENCE>(tile, own, of_row, x);
            excluded = Op::EXCLUDED;
        } else {
            store(Statistic::template results<Op>(tile, of_row), Op::EXCLUDED);
        }
    });
    if constexpr (Statistic::FILLS_X && !Ops::ONE_A_ROW) store(x, excluded);
}

#endif
