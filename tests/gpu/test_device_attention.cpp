#include "gpu/check.hpp"
#include "gpu/kernels/attention.hpp"
#include "tests/device/attention_cases.hpp"
#include "tests/gpu/device_support.hpp"

// For attention, a GPU promises more than the contract: the same bits on every rerun, and
// for operands at any address. Also tests more tiles than a block checks at once.

namespace lockstep::test {

namespace {

/// Heads of one tensor. Its data begins `shift` elements into its storage.
struct ShiftedHeads {
    ShiftedHeads(Bench& bench, const HeadCase& test_case, DType dtype, std::int64_t shift)
        : heads(test_case.heads), width(test_case.width) {
        const auto tensor = [&](std::int64_t rows, std::int64_t columns,
                                const char* name) {
            return uploaded(
                bench, random_values({rows, test_case.batches, columns}, dtype, name),
                shift);
        };
        q = tensor(test_case.m, test_case.heads * width, "q");
        dq = tensor(test_case.m, test_case.heads * width, "dq");
        dy = tensor(test_case.m, test_case.heads * width, "dy");
        kv = tensor(test_case.n, 2 * test_case.few * width, "kv");
        dkv = tensor(test_case.n, 2 * test_case.few * width, "dkv");
        few = test_case.few;
    }
    AttentionHeads heads_of(const Tensor& of_queries, const Tensor& of_keys) const {
        return {{of_queries, heads, width, 0},
                {of_keys, few, width, 0},
                {of_keys, few, width, few * width}};
    }
    std::int64_t heads, width, few = 0;
    Tensor q, dq, dy, kv, dkv;
};

/// Returns all results of attention and of its backward.
std::vector<HostTensor> results(Bench& bench, const ShiftedHeads& operands) {
    const AttentionOptions options{0.6, true, {}, {}};
    const AttentionHeads heads = operands.heads_of(operands.q, operands.kv);
    const OnlineAttention state = bench->begin_attention(heads.queries);
    bench->attend(state, heads, options);
    const Tensor log_sum_exp = bench->finish_attention(state);
    const Tensor y = bench->empty(operands.dy.shape(), operands.dy.dtype());
    bench->cast(y, state.y);
    const Heads of_y{y, operands.heads, operands.width, 0},
        of_dy{operands.dy, operands.heads, operands.width, 0};
    const Tensor dy_y = bench->head_row_products(of_dy, of_y);
    bench->attend_backward(operands.heads_of(operands.dq, operands.dkv), heads,
                           {operands.dy, log_sum_exp, dy_y}, options);
    return {bench->download(state.y), bench->download(log_sum_exp), bench->download(dy_y),
            bench->download(operands.dq), bench->download(operands.dkv)};
}

/// Returns the values i % 5. Sums over a few thousand of them are exact.
HostTensor counted(Shape shape, DType dtype) {
    HostTensor values(shape, dtype);
    for (std::int64_t i = 0; i < values.elements(); ++i)
        values.set(i, static_cast<double>(i % 5));
    return values;
}

constexpr std::int64_t kMany = 16504;  ///< more than 256 tiles of 64

/// Returns all rows of a sequence that is sharded over four ranks.
TokenRows dealt(TokenOrder order) {
    return {order, 4, kMany / 4, 0};
}

}  // namespace

TEST_CASE("Attention gives the same bits again, and at other addresses",
          "[gpu][device]") {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    // Vectors can be loaded at all rows, or only at a few. There are several tiles.
    const HeadCase test_case =
        GENERATE(HeadCase{70, 70, 2, 2, 1, 8}, HeadCase{70, 70, 1, 2, 2, 7},
                 HeadCase{5, 130, 1, 1, 1, 40});
    CAPTURE(name_of(dtype), text_of(test_case));
    Bench bench;
    const auto first = results(bench, ShiftedHeads(bench, test_case, dtype, 0));
    for (const std::int64_t shift : {0, 1, 2, 3})
        REQUIRE(results(bench, ShiftedHeads(bench, test_case, dtype, shift)) == first);
}

TEST_CASE("Tensor cores take heads of 64 and of 128 columns", "[gpu][device][bf16]") {
    int gpu = 0, generation = 0;
    GPU_CHECK(cudaGetDevice(&gpu));
    GPU_CHECK(
        cudaDeviceGetAttribute(&generation, cudaDevAttrComputeCapabilityMajor, gpu));
    const bool has_cores = generation >= 8;
    REQUIRE(gpu::attends_in_bf16(64) == has_cores);
    REQUIRE(gpu::attends_in_bf16(128) == has_cores);
    REQUIRE_FALSE(gpu::attends_in_bf16(40));
    REQUIRE_FALSE(gpu::attends_in_bf16(256));
    if (!has_cores) return;
    // In f32, weights are not rounded, so results differ if bf16 uses tensor cores.
    const HeadCase test_case{70, 70, 1, 2, 1, 64};
    Bench bench;
    const auto narrow = results(bench, ShiftedHeads(bench, test_case, DType::bf16, 0));
    const auto wide = results(bench, ShiftedHeads(bench, test_case, DType::f32, 0));
    REQUIRE(narrow[0].shape() == wide[0].shape());
    REQUIRE_FALSE(narrow[0] == wide[0]);
}

TEST_CASE("Tensor cores give attention the same bits again, at any address of operands",
          "[gpu][device][bf16][sanitizer]") {
    const HeadCase test_case =
        GENERATE(HeadCase{70, 70, 1, 2, 1, 64}, HeadCase{5, 70, 1, 1, 1, 128});
    CAPTURE(text_of(test_case));
    Bench bench;
    const auto first = results(bench, ShiftedHeads(bench, test_case, DType::bf16, 0));
    for (const std::int64_t shift : {0, 1, 4, 8})
        REQUIRE(results(bench, ShiftedHeads(bench, test_case, DType::bf16, shift)) ==
                first);
}

TEST_CASE("A query attends to any number of keys", "[gpu][device][sanitizer]") {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const TokenOrder order =
        GENERATE(TokenOrder::contiguous, TokenOrder::striped, TokenOrder::zigzag);
    const std::int64_t token = GENERATE(8300, kMany - 3);
    CAPTURE(name_of(dtype), name_of(order), token);
    Bench bench;
    const HostTensor values = counted({kMany, 1, 1}, dtype);
    const Heads query{bench->zeros({1, 1, 1}, dtype), 1, 1, 0};
    const Heads keys{bench->upload(values), 1, 1, 0};
    const TokenRows tokens = dealt(order);
    double sum = 0;
    for (std::int64_t i = 0; i < kMany; ++i)
        if (tokens[i] <= token) sum += values.at(i);
    TokenRows own;
    own.first = token;
    const OnlineAttention state = bench->begin_attention(query);
    bench->attend(state, {query, keys, keys}, {1, true, own, tokens});
    REQUIRE(bench->download(state.sum).at(0) == static_cast<double>(token + 1));
    REQUIRE(bench->download(state.y).at(0) == sum);
}

TEST_CASE("A key's gradients come from any number of queries",
          "[gpu][device][sanitizer]") {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const TokenOrder order =
        GENERATE(TokenOrder::contiguous, TokenOrder::striped, TokenOrder::zigzag);
    const std::int64_t token = GENERATE(8300, kMany - 3);
    CAPTURE(name_of(dtype), name_of(order), token);
    Bench bench;
    const HostTensor values = counted({kMany, 1, 1}, dtype);
    const Tensor ones = bench->empty({kMany, 1, 1}, dtype);
    bench->fill(ones, 1);
    const Heads queries{ones, 1, 1, 0}, key{bench->zeros({1, 1, 1}, dtype), 1, 1, 0};
    const Heads value{bench->upload(counted({2, 1, 1}, dtype)).rows(1, 1), 1, 1, 0};
    const TokenRows tokens = dealt(order);
    double sum = 0;
    for (std::int64_t i = 0; i < kMany; ++i)
        if (tokens[i] >= token) sum += values.at(i);
    TokenRows own;
    own.first = token;
    // Scores and log-sum-exps of 0 make all weights 1. The value is also 1.
    const Tensor none = bench->zeros({1, 1, kMany}, dtype);
    const Heads dq{bench->zeros({kMany, 1, 1}, dtype), 1, 1, 0};
    const Heads dk{bench->zeros({1, 1, 1}, dtype), 1, 1, 0};
    const Heads dv{bench->zeros({1, 1, 1}, dtype), 1, 1, 0};
    bench->attend_backward({dq, dk, dv}, {queries, key, value},
                           {bench->upload(values), none, none}, {1, true, tokens, own});
    REQUIRE(bench->download(dk.tensor).at(0) == sum);
    REQUIRE(bench->download(dv.tensor).at(0) == sum);
}

TEST_CASE("Tensor cores attend to any number of keys and queries",
          "[gpu][device][bf16]") {
    // Only the first column of a head has values other than 0.
    constexpr std::int64_t kWidth = 64;
    Bench bench;
    const auto heads = [&](std::int64_t rows, const auto& value) {
        HostTensor values({rows, 1, kWidth}, DType::bf16);
        for (std::int64_t row = 0; row < rows; ++row)
            values.set(row * kWidth, value(row));
        return Heads{bench->upload(values), 1, kWidth, 0};
    };
    const auto one = [](std::int64_t) { return 1.0; };
    const auto none = [](std::int64_t) { return 0.0; };
    const auto counted = [](std::int64_t row) { return static_cast<double>(row % 5); };
    const Heads ones = heads(kMany, one), many = heads(kMany, counted);
    const TokenRows tokens = dealt(TokenOrder::zigzag);
    double before = 0, behind = 0;
    TokenRows own;
    own.first = 8300;
    for (std::int64_t row = 0; row < kMany; ++row)
        (tokens[row] <= own.first ? before : behind) += counted(row);

    // With scores of 0 all keys have equal weight.
    const Heads query = heads(1, none);
    const OnlineAttention state = bench->begin_attention(query);
    bench->attend(state, {query, many, many}, {1, true, own, tokens});
    REQUIRE(bench->download(state.sum).at(0) == 8301);
    REQUIRE(bench->download(state.y).at(0) == before);

    // A log-sum-exp and a key of 0 make all weights 1. The value is also 1.
    own.first = 8301;
    const Tensor zeros = bench->zeros({1, 1, kMany}, DType::f32);
    const Heads dq = heads(kMany, none), dk = heads(1, none), dv = heads(1, none);
    bench->attend_backward({dq, dk, dv}, {ones, heads(1, none), heads(1, one)},
                           {many.tensor, zeros, zeros}, {1, true, tokens, own});
    const double rounded = Bf16(behind);
    REQUIRE(bench->download(dk.tensor).at(0) == rounded);
    REQUIRE(bench->download(dv.tensor).at(0) == rounded);
}

TEST_CASE("Padding of a tile adds nothing to gradients, for any keys",
          "[gpu][device][sanitizer]") {
    const auto [dtype, width] = GENERATE(from_range(head_types(1)));
    Bench bench;
    const auto heads = [&, width = width, dtype = dtype](std::vector<double> firsts) {
        HostTensor values({static_cast<std::int64_t>(firsts.size()), 1, width}, dtype);
        for (std::size_t i = 0; i < firsts.size(); ++i)
            values.set(static_cast<std::int64_t>(i) * width, firsts[i]);
        return Heads{bench->upload(values), 1, width, 0};
    };
    // Three queries of 1 have scores of -infinity; padding would make them NaN.
    const Heads ones = heads({1, 1, 1}), keys = heads({-HUGE_VAL, 0});
    const Heads dq = heads({0, 0, 0}), dk = heads({5, 6}), dv = heads({7, 8});
    const Tensor none = bench->zeros({1, 1, 3}, computed_in(dtype));
    bench->attend_backward({dq, dk, dv}, {ones, keys, heads({1, 1})},
                           {ones.tensor, none, none});
    REQUIRE(bench->download(dk.tensor).at(0) == 5);
    REQUIRE(bench->download(dv.tensor).at(0) == 7);
    REQUIRE(bench->download(dk.tensor).at(width) == 9);
    REQUIRE(bench->download(dv.tensor).at(width) == 11);
}

}  // namespace lockstep::test
