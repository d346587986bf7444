// Requests as programs make them. The length of each text in them is a multiple of 8, so
// all numbers begin at multiples of 8.

#include <bit>

#include "tests/grader/hostile_numbers.hpp"

namespace lockstep::test {

using namespace lessons;

namespace {

/// Returns a part of one of the grader's tensors; it begins at element 64 * place.
Tensor part_of(Handle handle, DType dtype, std::int64_t place, const Shape& shape) {
    constexpr std::int64_t kEach = 64;
    return tensor_of(handle, dtype, {kGiven})
        .slice(kEach * place, shape.elements())
        .reshaped(shape);
}

Tensor real(std::int64_t place, const Shape& shape) {
    return part_of(kReal, DType::f64, place, shape);
}
Tensor whole(std::int64_t place, const Shape& shape) {
    return part_of(kWhole, DType::i32, place, shape);
}

/// A request of one message.
Request said(const char* name, const Message& asks) {
    return {name, [asks](int) { return std::vector<Message>{asks}; }, 0};
}
template <typename... T>
Request told(const char* name, RankRequest request, const T&... arguments) {
    return said(name, message(request, arguments..., kHere));
}
template <typename Op>
Request call(const char* name, const Op& operation) {
    return said(name, operation_of(operation));
}

void add_moves(std::vector<Request>& to) {
    const Tensor x = real(0, {6, 8}), y = real(1, {6, 8});
    const HostTensor host = HostTensor::of<double>({2, 2}, std::vector<double>(4, 1.5));
    to.push_back(told("empty", RankRequest::empty, MemoryCategory::workspace, Shape{2, 3},
                      DType::f64));
    to.push_back(told("upload_into", RankRequest::upload_into, real(0, {2, 2}), host));
    to.push_back(told("download", RankRequest::download, x));
    to.push_back(told("peek", RankRequest::peek, x));
    to.push_back(call("fill", ops::Fill{x, 2.0}));
    to.push_back(call("copy", ops::Copy{y, x}));
    to.push_back(
        call("copy_columns",
             ops::CopyColumns{y, std::int64_t{1}, x, std::int64_t{2}, std::int64_t{3}}));
    to.push_back(call("add", ops::Add{y, x, 0.5}));
    to.push_back(call("scale", ops::Scale{x, 0.5}));
    to.push_back(call("scale i32", ops::Scale{whole(0, {6, 8}), 2.0}));
    to.push_back(call("scale_by_tensor", ops::ScaleByTensor{x, real(2, {1})}));
    to.push_back(call("multiply", ops::Multiply{y, x}));
    to.push_back(call("combine", ops::Combine{y, x, Reduction::maximum}));
    to.push_back(call(
        "cast", ops::Cast{real(0, {6, 8}), part_of(kSingle, DType::f32, 0, {6, 8})}));
    to.push_back(call("sum", ops::Sum{real(2, {1}), x, true}));
    to.push_back(call("sum_of_squares", ops::SumOfSquares{real(2, {1}), x}));
    to.push_back(call("random_uniform", ops::RandomUniform{x, RandomStream(7, "u"), -1.0,
                                                           1.0, RandomPart(3, 10)}));
    to.push_back(call("random_normal", ops::RandomNormal{x, RandomStream(7, "n"), 0.0,
                                                         1.0, RandomPart(3, 10)}));
    to.push_back(call("dropout",
                      ops::Dropout{{}, x, 0.5, RandomStream(7, "d"), RandomPart(3, 10)}));
}

void add_layers(std::vector<Request>& to) {
    const Tensor x = real(0, {6, 8}), y = real(1, {6, 8}), weight = real(2, {8}),
                 bias = real(3, {8}), rstd = real(5, {6});
    to.push_back(call("matmul", ops::Matmul{{}, x, real(1, {8, 5}), MatmulOptions{}}));
    to.push_back(
        call("matmul_into", ops::Matmul{real(2, {6, 5}), x, real(1, {8, 5}),
                                        MatmulOptions{.accumulate = true}, true}));
    to.push_back(
        call("grouped_matmul", ops::GroupedMatmul{real(2, {6, 4}), x, real(1, {16, 4}),
                                                  std::vector<std::int64_t>{2, 4},
                                                  MatmulOptions{.accumulate = true}}));
    to.push_back(call("add_bias", ops::AddBias{x, bias}));
    to.push_back(call("accumulate_rows", ops::AccumulateRows{bias, x}));
    to.push_back(call("scale_rows", ops::ScaleRows{x, rstd}));
    to.push_back(call("row_products", ops::RowProducts{rstd, x, y}));
    to.push_back(call("orthonormalize", ops::Orthonormalize{real(0, {8, 6})}));
    to.push_back(call("tanh", ops::Tanh{{}, x}));
    to.push_back(call("tanh_backward", ops::TanhBackward{{}, x, y}));
    to.push_back(call("sigmoid", ops::Sigmoid{{}, x}));
    to.push_back(call("sigmoid_backward", ops::SigmoidBackward{{}, x, y}));
    to.push_back(call("gelu", ops::Gelu{{}, x}));
    to.push_back(call("gelu_backward", ops::GeluBackward{{}, x, y, GeluForm::tanh}));
    to.push_back(call("swiglu", ops::Swiglu{{}, x}));
    to.push_back(call("swiglu_backward", ops::SwigluBackward{{}, x, real(1, {6, 4})}));
    to.push_back(call("layer_norm", ops::LayerNorm{{}, x, weight, bias, 1e-5}));
    to.push_back(call("layer_norm_backward_input",
                      ops::LayerNormBackwardInput{{}, y, x, weight, real(4, {6}), rstd}));
    to.push_back(
        call("layer_norm_backward_weight",
             ops::LayerNormBackwardWeight{weight, bias, y, x, real(4, {6}), rstd}));
    to.push_back(call("rms_norm", ops::RmsNorm{{}, {}, x, weight, 1e-5}));
    to.push_back(call("rms_norm_backward_input",
                      ops::RmsNormBackwardInput{{}, y, x, weight, rstd}));
    to.push_back(
        call("rms_norm_backward_weight", ops::RmsNormBackwardWeight{weight, y, x, rstd}));
    const Tensor sums = real(5, {9}), both = real(6, {2, 8}), count = real(7, {1});
    to.push_back(call("batch_sums", ops::BatchSums{{}, x}));
    to.push_back(call("batch_squares", ops::BatchSquares{{}, x, sums}));
    to.push_back(
        call("batch_moments",
             ops::BatchMoments{
                 {}, {}, sums, real(4, {8}), RunningMoments{weight, bias, 0.5}, 1e-5}));
    to.push_back(call("batch_norm",
                      ops::BatchNorm{{}, x, real(4, {8}), real(5, {8}), weight, bias}));
    to.push_back(call("batch_norm_backward_sums",
                      ops::BatchNormBackwardSums{{}, y, x, real(4, {8}), real(5, {8})}));
    to.push_back(call("batch_norm_backward_input",
                      ops::BatchNormBackwardInput{
                          {}, y, x, weight, real(4, {8}), real(5, {8}), both, count}));
    to.push_back(call("clip_factor", ops::ClipFactor{real(2, {1}), real(3, {1}), 0.5}));
    to.push_back(call("sgd", ops::Sgd{x, y, real(2, {6, 8}), SgdOptions{0.1, 0.9, 0.1}}));
    to.push_back(call("adamw", ops::AdamW{x, y, real(2, {6, 8}), real(3, {6, 8}),
                                          std::int64_t{3}, AdamWOptions{}}));
}

void add_attention(std::vector<Request>& to) {
    const auto heads = [](std::int64_t place) {
        return Heads{real(place, {4, 2, 8}), 2, 4, 0};
    };
    const Tensor weights = real(6, {2, 2, 4, 4});
    const OnlineAttention state{real(3, {4, 2, 8}), real(4, {2, 2, 4}),
                                real(5, {2, 2, 4})};
    const AttentionHeads all{heads(0), heads(1), heads(2)};
    const AttentionHeads gradients{heads(7), heads(8), heads(9)};
    const AttentionBackward backward{real(3, {4, 2, 8}), real(4, {2, 2, 4}),
                                     real(5, {2, 2, 4})};
    const AttentionOptions causal{
        0.5, true, {TokenOrder::zigzag, 2, 4, 4}, {TokenOrder::striped, 2, 4, 0}};
    const Tensor places = whole(1, {8}), rows = real(0, {4, 1, 8}),
                 pages = real(1, {3, 2, 4});
    const auto tokens =
        std::make_shared<const PagedTokens>(PagedTokens{{{0, 3, {1, 0}}, {1, 1, {2}}}});
    to.push_back(call("head_products", ops::HeadProducts{{}, heads(0), heads(1), 0.5}));
    to.push_back(call("head_sums", ops::HeadSums{{}, weights, heads(1)}));
    to.push_back(call("add_head_sums", ops::AddHeadSums{heads(0), weights, heads(1),
                                                        HeadSumOptions{true, 0.5}}));
    to.push_back(call("attend", ops::Attend{state, all, AttentionOptions{}}));
    to.push_back(call("attend causally", ops::Attend{state, all, causal}));
    to.push_back(call("finish_attention", ops::FinishAttention{state}));
    to.push_back(call("head_row_products", ops::HeadRowProducts{{}, heads(0), heads(1)}));
    to.push_back(call("rotate", ops::Rotate{heads(0), heads(1), causal.queries,
                                            RotaryOptions{100.0, true}, Tensor()}));
    to.push_back(
        call("rotate at places", ops::Rotate{heads(0), heads(1), {}, {}, places}));
    to.push_back(call("store_pages", ops::StorePages{pages, rows, 2, tokens}));
    to.push_back(
        call("head_matmul",
             ops::HeadMatmul{{}, {rows, 2, 2, 1}, real(2, {4, 3}), MatmulOptions{}}));
    const Heads queries{rows, 2, 2, 1}, turned{rows, 2, 1, 5}, keys{pages, 1, 2, 0},
        also{pages, 1, 1, 2}, values{pages, 1, 1, 3};
    to.push_back(call("attend_pages",
                      ops::AttendPages{{}, queries, keys, values, tokens, 0.5, {}, {}}));
    to.push_back(
        call("attend_pages, turned",
             ops::AttendPages{{}, queries, keys, values, tokens, 0.5, turned, also}));
    to.push_back(
        call("attend_backward", ops::AttendBackward{gradients, all, backward, causal}));
}

void add_losses(std::vector<Request>& to) {
    const Tensor x = real(0, {6, 8}), y = real(1, {6, 8}), targets = whole(0, {6}),
                 maximum = real(2, {6}), parts = real(3, {2, 6}), table = real(4, {8, 4});
    const VocabularyShard shard{0, 16};
    const SoftmaxOptions causal{
        true, {TokenOrder::zigzag, 2, 4, 0}, {TokenOrder::striped, 2, 4, 0}};
    to.push_back(call("softmax", ops::Softmax{{}, x, causal}));
    to.push_back(call("softmax_backward", ops::SoftmaxBackward{{}, x, y}));
    to.push_back(call("log_sum_exp", ops::LogSumExp{{}, x}));
    to.push_back(call("normalize_rows", ops::NormalizeRows{{}, x}));
    to.push_back(call("normalize_rows_backward", ops::NormalizeRowsBackward{{}, x, y}));
    to.push_back(call("cross_entropy", ops::CrossEntropy{{}, x, targets}));
    to.push_back(
        call("cross_entropy_backward", ops::CrossEntropyBackward{{}, x, targets, 0.5}));
    to.push_back(call("row_maximum", ops::RowMaximum{{}, x, shard}));
    to.push_back(call("cross_entropy_parts",
                      ops::CrossEntropyParts{{}, x, targets, maximum, shard}));
    to.push_back(
        call("cross_entropy_of_parts", ops::CrossEntropyOfParts{{}, maximum, parts}));
    to.push_back(call(
        "cross_entropy_backward_of_parts",
        ops::CrossEntropyBackwardOfParts{{}, x, targets, maximum, parts, 0.5, shard}));
    to.push_back(call("squared_error", ops::SquaredError{{}, x, y}));
    to.push_back(
        call("squared_error_backward", ops::SquaredErrorBackward{{}, x, y, 0.5}));
    to.push_back(call("embedding", ops::Embedding{{}, table, targets, shard}));
    to.push_back(call("embedding_backward",
                      ops::EmbeddingBackward{table, targets, real(5, {6, 4}), shard}));
    to.push_back(call("take_rows", ops::TakeRows{real(5, {6, 4}), table, targets}));
    to.push_back(call("add_rows", ops::AddRows{table, real(5, {6, 4}), targets}));
    to.push_back(
        call("take_columns", ops::TakeColumns{real(5, {6, 2}), x, whole(1, {6, 2})}));
    to.push_back(
        call("add_columns", ops::AddColumns{x, real(5, {6, 2}), whole(1, {6, 2})}));
    to.push_back(call("top_k", ops::TopK{real(5, {6, 2}), whole(1, {6, 2}), x, 2,
                                         ColumnGroups{4, 2, 1}}));
    to.push_back(call("sort_ids", ops::SortIds{whole(1, {6}), whole(2, {6}),
                                               whole(3, {8}), whole(0, {6, 1}), true}));
}

// Requests other than device operations. Works and communicators are numbered from 1.

// The analyzer does not follow functions in lists.
// NOLINTBEGIN(clang-analyzer-cplusplus.NewDeleteLeaks)

constexpr std::int64_t kFirstWork = 1;
constexpr int kFirstSplit = 1;
const std::string kName = "a name, ";

Message wait_for(std::int64_t work) {
    return message(RankRequest::wait, work, kHere);
}

Request launched(const std::string& name,
                 const std::function<std::vector<CommOperation>(int)>& operations) {
    return {
        name,
        [=](int rank) {
            return std::vector<Message>{launch(operations(rank)), wait_for(kFirstWork)};
        },
        0};
}

void add_launches(std::vector<Request>& to) {
    const Tensor one = real(0, {8}), two = real(1, {16}), three = real(2, {8});
    const auto alike = [&to](Verb verb, int peer, const Tensor& output,
                             const Tensor& input) {
        to.push_back(launched(name_of(verb), [=](int) {
            return std::vector{operation(verb, peer, output, input)};
        }));
    };
    alike(Verb::all_reduce, -1, three, one);
    alike(Verb::all_gather, -1, two, one);
    alike(Verb::reduce_scatter, -1, one, two);
    alike(Verb::broadcast, 1, one, one);
    alike(Verb::reduce, 0, one, one);
    alike(Verb::gather, 0, two, one);
    alike(Verb::scatter, 0, one, two);
    alike(Verb::all_to_all, -1, three, one);
    alike(Verb::barrier, -1, {}, {});
    to.push_back(launched("send", [=](int rank) {
        return std::vector{rank == 0 ? operation(Verb::send, 1, {}, one)
                                     : operation(Verb::recv, 0, one, {})};
    }));
    to.push_back(launched("recv", [=](int rank) {
        return std::vector{rank == 1 ? operation(Verb::send, 0, {}, one)
                                     : operation(Verb::recv, 1, one, {})};
    }));
    to.push_back(launched("group of messages", [=](int rank) {
        return std::vector{operation(Verb::send, 1 - rank, {}, one),
                           operation(Verb::recv, 1 - rank, three, {})};
    }));
    to.push_back(launched("group of collectives", [=](int) {
        return std::vector{operation(Verb::all_reduce, -1, one, one),
                           operation(Verb::all_gather, -1, two, three)};
    }));
    to.push_back({"all_to_all_v",
                  [=](int) {
                      const std::vector<std::int64_t> counts{3, 5};
                      const std::vector<std::int64_t> equal{4, 4};
                      return std::vector<Message>{
                          message(RankRequest::all_to_all_v, kWorldNumber, one, equal,
                                  three, equal, kHere),
                          wait_for(kFirstWork)};
                  },
                  0});
}

Message split(int key) {
    return message(RankRequest::split, kWorldNumber,
                   SplitRequest{0, key, kName, {0, 1}, true}, kHere);
}

void add_handles(std::vector<Request>& to) {
    const Message barrier = launch({operation(Verb::barrier, -1, {}, {})});
    const Message began = message(RankRequest::phase_began, Phase::forward, 3, kHere);
    const auto same = [&to](const char* name, std::size_t place,
                            const std::vector<Message>& all) {
        to.push_back({name, [all](int) { return all; }, place});
    };
    same("freed", 0, {message(RankRequest::freed, std::int64_t{kOther})});
    same("phase_began", 0, {began, message(RankRequest::phase_ended)});
    same("phase_ended", 1, {began, message(RankRequest::phase_ended)});
    same("wait", 1, {barrier, wait_for(kFirstWork)});
    same("wait_any", 2,
         {barrier, barrier,
          message(RankRequest::wait_any, std::vector{kFirstWork, kFirstWork + 1}, kHere),
          wait_for(kFirstWork + 1)});
    same(
        "work_released", 2,
        {barrier, wait_for(kFirstWork), message(RankRequest::work_released, kFirstWork)});
    same("bytes_sent", 2,
         {barrier, wait_for(kFirstWork),
          message(RankRequest::bytes_sent, kWorldNumber, kHere)});
    const auto in_split = [](const std::vector<Message>& then) {
        return [then](int rank) {
            std::vector<Message> all{split(rank)};
            all.insert(all.end(), then.begin(), then.end());
            return all;
        };
    };
    to.push_back({"split", in_split({}), 0});
    to.push_back({"communicator_gone",
                  in_split({message(RankRequest::communicator_gone, kFirstSplit)}), 1});
    for (const auto& [name, request] :
         {std::pair{"expect_replicated", RankRequest::expect_replicated},
          std::pair{"declare_replicas", RankRequest::declare_replicas},
          std::pair{"declare_same", RankRequest::declare_same}})
        to.push_back(
            {name,
             in_split({message(request, kFirstSplit, real(0, {6, 8}), kName, kHere)}),
             1});
    const HostTensor values(Shape{2, 3}, DType::i32);
    to.push_back({"declare_values",
                  in_split({message(RankRequest::declare_values, kFirstSplit, values,
                                    kName, kHere)}),
                  1});
}

void add_ends(std::vector<Request>& to) {
    const std::map<std::string, Tensor> tensors{{"tensor 1", real(0, {6, 8})},
                                                {"tensor 2", real(0, {6, 8})}};
    const std::map<std::string, HostTensor> values{
        {"values 1", HostTensor::of<double>({2}, std::vector<double>(2))}};
    const std::map<std::string, std::string> texts{{"a text 1", "in words"}};
    const Message returned = message(RankRequest::returned, tensors, values, texts);
    const Message threw =
        message(RankRequest::threw, ThrownKind::usage, std::string("in words"));
    to.push_back({"returned", [=](int) { return std::vector{returned}; }, 0});
    to.push_back({"threw",
                  [=](int rank) { return std::vector{rank == 0 ? threw : returned}; },
                  0});
}

// NOLINTEND(clang-analyzer-cplusplus.NewDeleteLeaks)

}  // namespace

Tensor tensor_of(std::int64_t handle, DType dtype, const Shape& shape) {
    auto* const storage = new Storage;
    storage->data = std::bit_cast<std::byte*>(handle);
    storage->bytes = shape.elements() * bytes_of(dtype);
    return {boost::intrusive_ptr<Storage>(storage), shape, dtype};
}

CommOperation operation(Verb verb, int peer, const Tensor& output, const Tensor& input) {
    CommOperation asked;
    asked.verb = verb;
    asked.peer = peer;
    asked.output = output;
    asked.input = input;
    asked.at = kHere;
    return asked;
}

Message launch(const std::vector<CommOperation>& operations) {
    return message(RankRequest::launch, kWorldNumber, operations, kHere);
}

Message nothing_left() {
    return message(RankRequest::returned, std::int64_t{0}, std::int64_t{0},
                   std::int64_t{0});
}

std::vector<Request> device_requests() {
    std::vector<Request> all;
    add_moves(all);
    add_layers(all);
    add_attention(all);
    add_losses(all);
    return all;
}

std::vector<Request> other_requests() {
    std::vector<Request> all;
    add_launches(all);
    add_handles(all);
    add_ends(all);
    return all;
}

}  // namespace lockstep::test
