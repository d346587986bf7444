// Tasks that together make every request that a rank's process can make. They run twice:
// on virtual devices in one process, and with one process for each rank.

#include "src/comm/expect.hpp"
#include "src/comm/mesh.hpp"
#include "src/course/task.hpp"
#include "src/nn/flash_attention.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"

namespace lockstep {

namespace {

/// Runs the operations that the layers in this file do not use.
void device_operations(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    Device& device = rank.device();
    const Tensor& x = in.tensor("x");  // (6, 8)
    const Tensor& y = in.tensor("y");  // (6, 8)
    const Tensor a = device.zeros({6, 8}, DType::f64);
    device.copy(a, x);
    device.add(a, y, 0.5);
    device.multiply(a, x);
    device.combine(a, y, Reduction::maximum);
    device.scale(a.rows(1, 2), 3);
    device.copy_columns(a, 1, y, 4, 3);
    const Tensor total = device.zeros({1}, DType::f64);
    device.sum(total, a, true);
    const Tensor squares = device.zeros({1}, DType::f64);
    device.sum_of_squares(squares, a);
    device.clip_factor(squares, squares, 0.5);
    device.scale(a, squares);
    out.tensors["moved"] = a;
    out.tensors["total"] = total;
    out.tensors["product"] = device.matmul(x, y, {.transpose_b = true});
    const Tensor into = device.zeros({8, 8}, DType::f64);
    device.matmul_into(into, x, y, {.transpose_a = true, .accumulate = true});
    out.tensors["into"] = into;
    const Tensor t = device.tanh(x);
    out.tensors["tanh"] = device.tanh_backward(t, y);
    out.tensors["gelu"] = device.gelu_backward(x, y, GeluForm::tanh);
    out.tensors["swiglu"] = device.swiglu(x);
    out.tensors["swiglu_backward"] = device.swiglu_backward(x, device.swiglu(y));
    out.tensors["softmax"] = device.softmax_backward(device.softmax(x), y);
    const Tensor weight =
        device.upload(HostTensor::of<double>({8}, std::vector<double>(8, 2)));
    const Device::Normalized norm = device.rms_norm(x, weight);
    out.tensors["rms_norm"] = device.rms_norm_backward_input(y, x, weight, norm.rstd);
    const Tensor d_weight = device.zeros({8}, DType::f64);
    device.rms_norm_backward_weight(d_weight, y, x, norm.rstd);
    out.tensors["d_weight"] = d_weight;
    const Tensor random = device.empty({4, 4}, DType::f64);
    device.random_uniform(random, RandomStream(7, "u"), -1, 1, {3, 10});
    out.tensors["random"] = random;
    const LossResult squared = mean_squared_error(device, x, y);
    out.tensors["squared"] = squared.gradient;
    out.values["host"] = HostTensor::of<double>({2}, std::vector<double>{1.5, -2});
    out.texts["words"] = "two lines\nof text";
}

/// Shards the classes over the ranks, as for the loss of a sharded vocabulary.
void shards(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    Device& device = rank.device();
    const Tensor& logits = in.tensor("x");
    const Tensor targets = device.upload(
        HostTensor::of<std::int32_t>({6}, std::vector<std::int32_t>{0, 5, 9, 1, 12, 15}));
    const VocabularyShard shard{std::int64_t{8} * rank.index(),
                                std::int64_t{8} * rank.size()};
    const Tensor maximum = device.row_maximum(logits, shard);
    rank.world().all_reduce(maximum, Reduction::maximum).wait();
    const Tensor parts = device.cross_entropy_parts(logits, targets, maximum, shard);
    rank.world().all_reduce(parts).wait();
    out.tensors["losses"] = device.cross_entropy_of_parts(maximum, parts);
    out.tensors["gradient"] = device.cross_entropy_backward_of_parts(
        logits, targets, maximum, parts, 0.25, shard);
    const Tensor ids = device.upload(
        HostTensor::of<std::int32_t>({3}, std::vector<std::int32_t>{2, 5, 2}));
    const Tensor rows = device.embedding(logits, ids);
    const Tensor d_table = device.zeros(logits.shape(), DType::f64);
    device.embedding_backward(d_table, ids, rows);
    device.take_rows(rows, d_table, ids);
    device.add_rows(d_table, rows, ids);
    const Tensor factors = device.zeros({3}, DType::f64);
    device.row_products(factors, rows, rows);
    device.scale_rows(rows, factors);
    out.tensors["scaled_rows"] = rows;
    const Tensor orthonormal = device.empty({8, 3}, DType::f64);
    device.random_normal(orthonormal, {4, "columns"}, 0, 1);
    device.orthonormalize(orthonormal);
    out.tensors["orthonormal"] = orthonormal;
    const Tensor largest = device.zeros({3, 2}, DType::f64);
    const Tensor columns = device.zeros({3, 2}, DType::i32);
    device.top_k(largest, columns, rows, 2);
    out.tensors["largest"] = largest;
    out.tensors["columns"] = columns;
    device.take_columns(largest, rows, columns);
    device.add_columns(rows, largest, columns);
    const Tensor scores = device.sigmoid(rows);
    out.tensors["d_scores"] = device.normalize_rows_backward(
        scores, device.sigmoid_backward(scores, device.normalize_rows(scores)));
    out.tensors["log_sums"] = device.log_sum_exp(scores);
    const Tensor grouped = device.empty({3, 2}, DType::f64);
    device.grouped_matmul(grouped, scores,
                          device.zeros({4, scores.shape().columns()}, DType::f64), {1, 2},
                          {.transpose_b = true});
    out.tensors["grouped"] = grouped;
    const Tensor order = device.empty({6}, DType::i32);
    const Tensor of_places = device.empty({6}, DType::i32);
    const Tensor counts = device.empty({logits.shape().columns()}, DType::i32);
    device.sort_ids(order, of_places, counts, columns);
    out.tensors["order"] = order;
    out.tensors["of_places"] = of_places;
    out.tensors["counts"] = counts;
    out.tensors["d_table"] = d_table;
}

void train(Rank& rank, const TaskInputs&, TaskOutputs& out) {
    Device& device = rank.device();
    GptSizes sizes;
    sizes.vocabulary = 11;
    sizes.context = 6;
    sizes.layers = 2;
    sizes.block = {.hidden = 8, .heads = 2};
    const std::unique_ptr<Sequential> model =
        make_gpt({device, DType::f64, 5, {}}, sizes);
    AdamW optimizer(model->parameters());
    const Tensor ids = device.upload(HostTensor::of<std::int32_t>(
        {6, 1}, std::vector<std::int32_t>{1, 4, 2, 8, 5, rank.index()}));
    for (int step = 0; step < 2; ++step) {
        Saved saved;
        LossResult loss;
        {
            const PhaseScope phase(device, Phase::forward, step);
            loss = cross_entropy_loss(device, model->forward(ids, saved), ids);
        }
        const PhaseScope phase(device, Phase::backward, step);
        model->backward(loss.gradient, saved);
        for (Parameter* parameter : model->parameters())
            rank.world().all_reduce(parameter->gradient, Reduction::mean).wait();
        optimizer.step();
        zero_gradients(*model);
        out.tensors["loss"] = loss.loss;
    }
    for (Parameter* parameter : model->parameters()) {
        out.tensors[parameter->name()] = parameter->value;
        expect_replicated(rank.world(), parameter->value, parameter->name());
    }
}

void attend(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    Device& device = rank.device();
    const Tensor x = in.tensor("x").reshaped({3, 2, 8});
    const Tensor dy = in.tensor("y").reshaped({3, 2, 8});
    const Heads heads{x, 2, 4, 0};
    const AttentionHeads all{heads, heads, heads};
    const AttentionOptions options{0.5, true, {}, {}};
    const OnlineAttention state = device.begin_attention(heads);
    device.attend(state, all, options);
    const Tensor log_sum_exp = device.finish_attention(state);
    const Tensor dx = device.zeros({3, 2, 8}, DType::f64);
    const Heads d_heads{dx, 2, 4, 0};
    const Tensor dy_y = device.head_row_products({dy, 2, 4, 0}, {state.y, 2, 4, 0});
    device.attend_backward({d_heads, d_heads, d_heads}, all, {dy, log_sum_exp, dy_y},
                           options);
    device.rotate(d_heads, d_heads, {TokenOrder::striped, 2, 2, 1}, {100, true});
    out.tensors["y"] = state.y;
    out.tensors["dx"] = dx;
}

void communicate(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    Device& device = rank.device();
    Communicator& world = rank.world();
    const int n = rank.size();
    const int me = rank.index();
    const Tensor x = in.tensor("x").flat();
    const Tensor all = device.zeros({n * x.elements()}, DType::f64);
    world.all_gather(all, x).wait();
    const Tensor part = device.zeros({x.elements()}, DType::f64);
    world.reduce_scatter(part, all, Reduction::maximum).wait();
    Work broadcast = world.broadcast(part, n - 1);
    const Tensor other = device.zeros({n}, DType::f64);
    world.gather(me == 0 ? other : Tensor(), x.slice(0, 1), 0).wait();
    world.scatter(x.slice(0, 1), me == 0 ? other : Tensor(), 0).wait();
    broadcast.wait();
    world.reduce(part, 0).wait();
    const Tensor swapped = device.zeros({n}, DType::f64);
    world.all_to_all(swapped, x.slice(0, n)).wait();
    world.barrier().wait();
    world.group()
        .send(x, (me + 1) % n)
        .recv(all.slice(0, x.elements()), (me + n - 1) % n)
        .start()
        .wait();
    // Rank r sends one row to rank 0 and keeps its other rows.
    std::vector<std::int64_t> sent(static_cast<std::size_t>(n), 0);
    std::vector<std::int64_t> received(static_cast<std::size_t>(n), me == 0 ? 1 : 0);
    sent[static_cast<std::size_t>(me)] = n;
    received[static_cast<std::size_t>(me)] = n;
    if (me > 0) sent[0] = 1;
    const std::int64_t more = me == 0 ? n - 1 : 0;
    const Tensor rows = device.zeros({n + more}, DType::f64);
    world.all_to_all_v(rows, received, x.slice(0, n + (me > 0 ? 1 : 0)), sent).wait();
    const std::unique_ptr<Communicator> half = world.split(me % 2, -me, "half");
    half->all_reduce(part).wait();
    const std::unique_ptr<Communicator> some = world.subgroup({n - 1, 0}, "ends");
    if (some) some->all_reduce(swapped, Reduction::minimum).wait();
    out.values["sent"] = HostTensor::of<double>(
        {1}, std::vector<double>{static_cast<double>(
                 world.bytes_sent()[static_cast<std::size_t>(Verb::all_gather)])});
    out.tensors = {{"all", all}, {"part", part}, {"swapped", swapped}, {"rows", rows}};
}

}  // namespace

Tasks tasks() {
    return {{"device operations", device_operations},
            {"shards", shards},
            {"train", train},
            {"attend", attend},
            {"communicate", communicate}};
}

}  // namespace lockstep
