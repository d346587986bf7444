// Numbers and counts that no program would use on purpose. A bound refuses each of them.

#include "tests/catch.hpp"
#include "tests/grader/hostile_numbers.hpp"

using namespace lockstep;
using namespace lockstep::lessons;
using namespace lockstep::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Returns how a run of one rank ends after these messages.
std::string said_to(const std::vector<Message>& messages) {
    const Ended ended = run_of({script_of(messages)});
    return ended ? *ended : "nothing";
}

constexpr std::int64_t kInt = std::int64_t{1} << 31;
constexpr std::int64_t kVast = std::int64_t{1} << 32;
constexpr std::int64_t kNext = kEmpty + 1;  ///< handle of the first new tensor

/// Returns a head as wide as the tensor (sequence, batches, width).
Heads head_of(std::int64_t handle, DType dtype, const Shape& shape) {
    return {tensor_of(handle, dtype, shape), 1, shape.columns(), 0};
}

// The analyzer does not see that a std::function destroys what it holds.
// NOLINTBEGIN(clang-analyzer-cplusplus.NewDeleteLeaks)
/// Attention with an equal number of queries and keys, in one batch or none. The tensors
/// have consecutive handles, or no elements.
std::vector<Message> attention(std::int64_t handle, DType dtype, std::int64_t rows,
                               std::int64_t batches, const TokenRows& tokens,
                               bool causal) {
    const std::int64_t next = batches == 0 ? 0 : 1;
    const Heads heads = head_of(handle, dtype, {rows, batches, 1});
    const Heads y = head_of(handle + next, dtype, {rows, batches, 1});
    const Tensor row = tensor_of(handle + 2 * next, dtype, {batches, 1, rows});
    const Tensor other = tensor_of(handle + 3 * next, dtype, {batches, 1, rows});
    const AttentionOptions options{1, causal, tokens, tokens};
    const AttentionHeads all{heads, heads, heads};
    return {operation_of(ops::Attend{{y.tensor, row, other}, all, options}),
            operation_of(ops::AttendBackward{
                {y, y, y}, all, {heads.tensor, row, other}, options})};
}

}  // namespace

TEST_CASE("A product with vast extents but no elements is refused", "[grader]") {
    const auto product = [](std::int64_t m, std::int64_t n) {
        return operation_of(ops::Matmul{{},
                                        tensor_of(kReal, DType::f64, {m, 0}),
                                        tensor_of(kReal, DType::f64, {0, n}),
                                        {}});
    };
    CHECK(said_to({product(kVast, 0), product(0, kVast)}) == "nothing");
    CHECK_THAT(said_to({product(8, kVast)}), ContainsSubstring("F30"));
    CHECK_THAT(said_to({product(kVast, kVast)}),
               ContainsSubstring("more than there can be"));
    CHECK_THAT(said_to({product(kVast - 1, kVast - 1)}),
               ContainsSubstring("more than there can be"));
}

TEST_CASE("Attention that would take too long is refused", "[grader]") {
    const TokenRows zigzag{TokenOrder::zigzag, kInt - 1, 2, 0};
    for (const bool causal : {false, true})
        for (const TokenRows& tokens : {TokenRows{}, zigzag})
            for (const Message& asks :
                 attention(kReal, DType::f64, kInt, 0, tokens, causal))
                CHECK(said_to({asks}) == "nothing");
    const std::int64_t rows = 1 << 20;
    const std::vector<Message> room(
        4, message(RankRequest::empty, MemoryCategory::workspace, Shape{rows}, DType::f32,
                   kHere));
    for (const Message& asks : attention(kNext, DType::f32, rows, 1, zigzag, true)) {
        std::vector<Message> all = room;
        all.push_back(asks);
        CHECK_THAT(said_to(all), ContainsSubstring("takes longer than"));
    }
}
// NOLINTEND(clang-analyzer-cplusplus.NewDeleteLeaks)

TEST_CASE("Names, groups and splits that are too large are refused", "[grader]") {
    const std::string name(2000, 'n');
    const Tensor x = tensor_of(kReal, DType::f64, {8});
    CHECK_THAT(said_to({message(RankRequest::split, kWorldNumber,
                                SplitRequest{0, 0, name, {}, false}, kHere)}),
               ContainsSubstring("a name is too long"));
    CHECK_THAT(said_to({message(RankRequest::split, kWorldNumber,
                                SplitRequest{0, 0, "", {0, 0}, false}, kHere)}),
               ContainsSubstring("more members than"));
    for (const std::vector<std::string>& mesh :
         {std::vector<std::string>{name}, std::vector<std::string>(50, "dp 2")})
        CHECK_THAT(said_to({message(RankRequest::split, kWorldNumber,
                                    SplitRequest{0, 0, "", {0}, false, mesh}, kHere)}),
                   ContainsSubstring(mesh.size() == 1 ? "a name is too long"
                                                      : "more axes than"));
    CHECK_THAT(
        said_to({message(RankRequest::declare_replicas, kWorldNumber, x, name, kHere)}),
        ContainsSubstring("a name is too long"));
    const std::vector<CommOperation> many(5000, operation(Verb::all_reduce, -1, x, x));
    CHECK_THAT(said_to({launch(many)}),
               ContainsSubstring("a group has too many operations"));
}

TEST_CASE("Each operation of a group counts, and the grader's time ends a run",
          "[grader]") {
    const Tensor none = tensor_of(kEmpty, DType::f64, {0});
    const std::vector<CommOperation> group(4000,
                                           operation(Verb::all_reduce, -1, none, none));
    CHECK_THAT(said_to(std::vector<Message>(60, launch(group))),
               ContainsSubstring("had not ended after 200000 operations"));
    CHECK_THAT(*run_of({script_of({})}, {-1, 1000, 1000}),
               ContainsSubstring("rank 0: its calls have kept the grader busy"));
}

TEST_CASE("Nothing is released twice", "[grader]") {
    const Message barrier = launch({operation(Verb::barrier, -1, {}, {})});
    const Message released = message(RankRequest::work_released, std::int64_t{1});
    CHECK_THAT(said_to({barrier, released, released}),
               ContainsSubstring("released twice"));
    CHECK_THAT(said_to({released}), ContainsSubstring("released twice"));
    CHECK_THAT(said_to({message(RankRequest::communicator_gone, 1)}),
               ContainsSubstring("goes twice"));
}
