/* held.cuh - the walk of a row that is held in registers from its load to its store. A kernel of
 * such rows is three choices:
 *
 * Rows: how elements arrive and leave (launch_rows.cuh).
 *
 * Statistic: what a row adds up. statistic/max_sum.cuh says what each of its functions is for;
 * product_sum.cuh and running_pair.cuh are the others. Operations with one statistic share kernels.
 *
 * Team: who shares a row (team/). Threads near each other meet before the exponentials are taken,
 * and share a reference. Threads far from each other share the row alone.
 *
 *   row(), chunk<K>()      this thread's row, and the first of its K chunks there
 *   STRIDE                 from one of its chunks to the next
 *   near(part)             the value of all parts nearby
 *   far(own, sum, make)    make(whole(own, sum) of the row), where each nearby group has these two;
 *                          whole(own, sum) itself where all are near
 *   leaves()               whether this thread has nothing to do
 *   writes()               whether this thread writes the value of its row
 *   sums                   how a thread adds up its exponentials
 *   CHECK_ROW              whether the row may lie after the last one
 *   ONE_REFERENCE          whether all that share a row are near
 *   FETCHES                whether later rows are fetched ahead
 *   STREAM                 whether results go past the caches
 *   TESTS_ACCESSES         whether 16-bit rows too are tested for alignment at each access */
#ifndef ONS_HELD_CUH
#define ONS_HELD_CUH

#include "../rows/contiguous.cuh"
#include "../statistic/max_sum.cuh"

/* Calls body with this thread's row and its chunks there, from chunk `chunk` on. */
template <typename Ops, typename Rows, int K, typename Statistic, typename Team, typename Index,
          typename Body>
__device__ __forceinline__ void visit_loaded(const typename Rows::arguments &args, const Team &team,
                                             Index index, int64_t chunk, Body body) {
    constexpr int STRIDE = Team::STRIDE;
    constexpr bool CHECK_ROW = Team::CHECK_ROW;
    constexpr alignment_test TEST =
        Team::TESTS_ACCESSES ? alignment_test::PER_ACCESS : TEST_WHEN_HELD<Rows>;
    if constexpr (Ops::ONE_A_ROW && is_contiguous_rows<Rows> && Team::ONE_REFERENCE)
        body(Rows::result_of(args, index),
             Statistic::held(Rows::template load_row<K, STRIDE, CHECK_ROW>(args, index, chunk)));
    else
        Rows::template visit<CHECK_ROW, TEST>(args, index, [&](const auto &row) {
            if (team.leaves()) return;
            body(row, Statistic::held(row.template load<K, STRIDE>(chunk)));
        });
}

template <typename Ops, typename Rows, int K, typename Statistic = typename Ops::statistic,
          typename Team>
__device__ __forceinline__ void held(const typename Rows::arguments &args, Team &team) {
    using Real = typename Rows::Real;
    const auto index = team.row();
    const auto chunk = team.template chunk<K>();
    visit_loaded<Ops, Rows, K, Statistic>(
        args, team, index, chunk, [&](const auto &row, const auto &tile) {
            [[maybe_unused]] Real x[K * Rows::V], excluded = 0;
            const auto first = Statistic::first(tile);
            if constexpr (Team::FETCHES) Rows::template ahead<K>(args, index, team.warp());
            const auto own = team.near(first);
            auto store = [&](const auto &results, Real of_excluded) {
                row.template store<K, Team::STRIDE, Team::STREAM>(chunk, results, tile.allowed(),
                                                                  of_excluded);
            };
            with_operation<Ops>(args.operation(), [&](auto op) {
                using Op = decltype(op);
                const auto sum =
                    team.near(Statistic::template sum<Op, typename Team::sums>(tile, own, x));
                const auto of_row = team.far(own, sum, [&](const auto &whole) {
                    return Statistic::template of_row<Op>(whole);
                });
                if constexpr (Ops::ONE_A_ROW) {
                    put_value<Op>(args, index, team.writes(), row, of_row);
                } else if constexpr (Statistic::KEEPS) {
                    Statistic::template finish<Op, Team::ONE_REFERENCE>(tile, own, of_row, x);
                    excluded = Op::EXCLUDED;
                } else {
                    store(Statistic::template results<Op>(tile, of_row), Op::EXCLUDED);
                }
            });
            if constexpr (Statistic::KEEPS && !Ops::ONE_A_ROW) store(x, excluded);
        });
}

#endif
