/* held.cuh - the walk of a row that is held in registers from its load to its store. A kernel of
 * such rows is three choices:
 *
 * Rows: how elements arrive and leave (launch_rows.cuh).
 *
 * Statistic: what a row adds up. statistic/max_sum.cuh says what each of its functions is for. The
 * other statistics are in the other files of statistic/. Operations with one statistic share
 * kernels.
 *
 * Team: who shares a row (team/). Its threads meet twice. First the threads of a near group
 * exchange the maximum, which they need before the exponentials. They then share a reference. After
 * the sums all threads of the row exchange what each near group knows.
 *
 *   row()                 the index of this thread's row
 *   chunk<K>()            the first of this thread's K chunks in the row
 *   STRIDE                from one of these chunks to the next
 *   near(part)            merges a part over the near group; all its threads get the value
 *   far(own, sum, make)   merges whole(own, sum) over all near groups of the row, and returns
 *                         make(the merged one). A team of one near group returns whole(own, sum).
 *   leaves()              whether this thread has no elements and may return
 *   writes()              whether this thread writes the value of its row, or columns_to_write
 *   sums                  how a thread adds up its exponentials (statistic/sums.cuh)
 * A statistic may have results beside x (LEAVES_MORE). Its beside() then reads what a row has
 * beside its elements, finish() uses it, and leave() stores these results. If only the tile is
 * kept, leave() stores all results.
 *
 *   CHECK_ROW             whether row() may lie after the last row
 *   ONE_REFERENCE         whether all threads of a row are one near group
 *   FETCHES               whether later rows are prefetched
 *   STREAM                whether results go past the caches */
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
    auto beside = Statistic::template beside<K, STRIDE>(row, chunk);
    if constexpr (!Team::FETCHES) beside.read_first(); /* measured: earlier is slower in a block */
    auto tile = Statistic::as_held(row.template load<K, STRIDE>(chunk));
    [[maybe_unused]] Real x[K * Rows::V], excluded = 0;
    const auto first = Statistic::part(tile);
    if constexpr (Team::FETCHES) beside.read_first();
    beside.read();
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
            Statistic::template finish<Op, Team::ONE_REFERENCE>(tile, own, of_row, x, beside);
            excluded = Op::EXCLUDED;
            if constexpr (Statistic::LEAVES_MORE) {
                store(x, excluded);
                beside.leave(of_row);
            }
        } else if constexpr (Statistic::LEAVES_MORE) {
            beside.template leave<Team::STREAM>(tile, of_row, team.writes());
        } else {
            store(Statistic::template results<Op>(tile, of_row), Op::EXCLUDED);
        }
    });
    if constexpr (Statistic::FILLS_X && !Statistic::LEAVES_MORE && !Ops::ONE_A_ROW)
        store(x, excluded);
}

#endif
