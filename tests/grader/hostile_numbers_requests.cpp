// Requests as programs make them. All of their texts are as long as some numbers are, so
// that numbers begin at multiples of 8.

#include <bit>

#include "tests/grader/hostile_numbers.hpp"

namespace lockstep::test {

using namespace lessons;

namespace {

/// Elements [64 place, …) of one of the grader's tensors.
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

template <auto Operation, typename... T>
Request call(const char* name, const T&... arguments) {
    const Message asks = call_of<Operation>(arguments...);
    return {name, [asks](int) { return std::vector<Message>{asks}; }, 0};
}

void add_moves(std::vector<Request>& to) {
    const Tensor x = real(0, {6, 8}), y = real(1, {6, 8});
    const HostTensor host = HostTensor::of<double>({2, 2}, std::vector<double>(4, 1.5));
    to.push_back(call<&Device::empty>("empty", Shape{2, 3}, DType::f64));
    to.push_back(call<&Device::zeros>("zeros", Shape{2, 3}, DType::i32));
    to.push_back(call<&Device::upload>("upload", host));
    to.push_back(call<&Device::upload_into>("upload_into", real(0, {2, 2}), host));
    to.push_back(call<&Device::download>("download", x));
    to.push_back(call<&Device::peek>("peek", x));
    to.push_back(call<&Device::fill>("fill", x, 2.0));
    to.push_back(call<&Device::copy>("copy", y, x));
    to.push_back(call<&Device::copy_columns>("copy_columns", y, std::int64_t{1}, x,
                                             std::int64_t{2}, std::int64_t{3}));
    to.push_back(call<&Device::add>("add", y, x, 0.5));
    to.push_back(call<&Device::scale>("scale", x, 0.5));
    to.push_back(call<&Device::scale>("scale i32", whole(0, {6, 8}), 2.0));
    to.push_back(call<&Device::multiply>("multiply", y, x));
    to.push_back(call<&Device::combine>("combine", y, x, Reduction::maximum));
    to.push_back(call<&Device::sum>("sum", real(2, {1}), x, true));
    to.push_back(call<&Device::random_uniform>("random_uniform", x, RandomStream(7, "u"),
                                               -1.0, 1.0, RandomPart(3, 10)));
    to.push_back(call<&Device::random_normal>("random_normal", x, RandomStream(7, "n"),
                                              0.0, 1.0, RandomPart(3, 10)));
}

void add_layers(std::vector<Request>& to) {
    const Tensor x = real(0, {6, 8}), y = real(1, {6, 8}), weight = real(2, {8}),
                 bias = real(3, {8}), rstd = real(5, {6});
    const Normalized saved{real(6, {6, 8}), real(4, {6}), rstd};
    to.push_back(call<&Device::matmul>("matmul", x, real(1, {8, 5}), MatmulOptions{}));
    to.push_back(call<&Device::matmul_into>("matmul_into", real(2, {6, 5}), x,
                                            real(1, {8, 5}),
                                            MatmulOptions{.accumulate = true}));
    to.push_back(call<&Device::add_bias>("add_bias", x, bias));
    to.push_back(call<&Device::accumulate_rows>("accumulate_rows", bias, x));
    to.push_back(call<&Device::tanh>("tanh", x));
    to.push_back(call<&Device::tanh_backward>("tanh_backward", x, y));
    to.push_back(call<&Device::gelu>("gelu", x));
    to.push_back(call<&Device::gelu_backward>("gelu_backward", x, y));
    to.push_back(call<&Device::swiglu>("swiglu", x));
    to.push_back(call<&Device::swiglu_backward>("swiglu_backward", x, real(1, {6, 4})));
    to.push_back(call<&Device::layer_norm>("layer_norm", x, weight, bias, 1e-5));
    to.push_back(call<&Device::layer_norm_backward_input>("layer_norm_backward_input", y,
                                                          x, weight, saved));
    to.push_back(call<&Device::layer_norm_backward_weight>("layer_norm_backward_weight",
                                                           weight, bias, y, x, saved));
    to.push_back(call<&Device::rms_norm>("rms_norm", x, weight, 1e-5));
    to.push_back(call<&Device::rms_norm_backward_input>("rms_norm_backward_input", y, x,
                                                        weight, rstd));
    to.push_back(call<&Device::rms_norm_backward_weight>("rms_norm_backward_weight",
                                                         weight, y, x, rstd));
    to.push_back(
        call<&Device::sgd>("sgd", x, y, real(2, {6, 8}), SgdOptions{0.1, 0.9, 0.1}));
    to.push_back(call<&Device::adamw>("adamw", x, y, real(2, {6, 8}), real(3, {6, 8}),
                                      std::int64_t{3}, AdamWOptions{}));
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
    to.push_back(call<&Device::head_products>("head_products", heads(0), heads(1), 0.5));
    to.push_back(call<&Device::head_sums>("head_sums", weights, heads(1)));
    to.push_back(call<&Device::add_head_sums>("add_head_sums", heads(0), weights,
                                              heads(1), HeadSumOptions{true, 0.5}));
    to.push_back(call<&Device::begin_attention>("begin_attention", heads(0)));
    to.push_back(call<&Device::attend>("attend", state, all, AttentionOptions{}));
    to.push_back(call<&Device::attend>("attend causally", state, all, causal));
    to.push_back(call<&Device::finish_attention>("finish_attention", state));
    to.push_back(
        call<&Device::head_row_products>("head_row_products", heads(0), heads(1)));
    to.push_back(call<&Device::attend_backward>("attend_backward", gradients, all,
                                                backward, causal));
}

void add_losses(std::vector<Request>& to) {
    const Tensor x = real(0, {6, 8}), y = real(1, {6, 8}), targets = whole(0, {6}),
                 maximum = real(2, {6}), parts = real(3, {2, 6}), table = real(4, {8, 4});
    const VocabularyShard shard{0, 16};
    const SoftmaxOptions causal{
        true, {TokenOrder::zigzag, 2, 4, 0}, {TokenOrder::striped, 2, 4, 0}};
    to.push_back(call<&Device::softmax>("softmax", x, causal));
    to.push_back(call<&Device::softmax_backward>("softmax_backward", x, y));
    to.push_back(call<&Device::cross_entropy>("cross_entropy", x, targets));
    to.push_back(
        call<&Device::cross_entropy_backward>("cross_entropy_backward", x, targets, 0.5));
    to.push_back(call<&Device::row_maximum>("row_maximum", x, shard));
    to.push_back(call<&Device::cross_entropy_parts>("cross_entropy_parts", x, targets,
                                                    maximum, shard));
    to.push_back(
        call<&Device::cross_entropy_of_parts>("cross_entropy_of_parts", maximum, parts));
    to.push_back(call<&Device::cross_entropy_backward_of_parts>(
        "cross_entropy_backward_of_parts", x, targets, maximum, parts, 0.5, shard));
    to.push_back(call<&Device::squared_error>("squared_error", x, y));
    to.push_back(
        call<&Device::squared_error_backward>("squared_error_backward", x, y, 0.5));
    to.push_back(call<&Device::embedding>("embedding", table, targets, shard));
    to.push_back(call<&Device::embedding_backward>("embedding_backward", table, targets,
                                                   real(5, {6, 4}), shard));
}

// What is no call of the device. Works and communicators are numbered from 1.

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
