// Tensor, sequence, pipeline and expert parallelism, without a mistake. The checker must
// find nothing.

#include "tests/catch.hpp"
#include "tests/faults/correct.hpp"

namespace lockstep::test {

namespace {

MatmulOptions transposed_a() {
    MatmulOptions options;
    options.transpose_a = true;
    return options;
}

MatmulOptions transposed_b() {
    MatmulOptions options;
    options.transpose_b = true;
    return options;
}

/// Adds the product to the destination.
void add_product(Device& device, const Tensor& destination, const Tensor& a,
                 const Tensor& b) {
    MatmulOptions options = transposed_a();
    options.accumulate = true;
    device.matmul_into(destination, a, b, options);
}

}  // namespace

TEST_CASE("correct: tensor parallelism, columns then rows, times data parallelism",
          "[faults]") {
    must_stay_silent(4, [](Rank& rank) {
        Device& device = rank.device();
        const int t = rank.index() % 2;
        const int d = rank.index() / 2;
        const auto tp = rank.world().split(d, t, "tp");
        const auto dp = rank.world().split(t, d, "dp");
        // X (4, 6) · A (6, 8 / 2) -> gelu -> · B (8 / 2, 6) + bias, residual.
        Parameter a("a", device.empty({6, 4}, DType::f64),
                    device.zeros({6, 4}, DType::f64));
        Parameter b("b", device.empty({4, 6}, DType::f64),
                    device.zeros({4, 6}, DType::f64));
        Parameter bias("bias", device.zeros({6}, DType::f64),
                       device.zeros({6}, DType::f64));
        device.random_normal(a.value, RandomStream(1, "a"), 0, 0.5, 24 * t);
        device.random_normal(b.value, RandomStream(1, "b"), 0, 0.5, 24 * t);
        AdamW optimizer({&a, &b, &bias});
        for (int i = 0; i < kSteps; ++i) {
            for (Parameter* parameter : {&a, &b, &bias})
                parameter->zero_gradient();
            const Tensor x = random_rows(device, "x", 4 * (2 * i + d), 4, 6);
            Tensor h;
            Tensor g;
            LossResult loss;
            {
                const PhaseScope phase(device, Phase::forward, 0);
                h = device.matmul(x, a.value);
                g = device.gelu(h);
                const Tensor y = device.matmul(g, b.value);
                tp->all_reduce(y).wait();
                device.add_bias(y, bias.value);
                device.add(y, x);
                loss = mean_squared_error(
                    device, y, random_rows(device, "y", 4 * (2 * i + d), 4, 6), 0.5);
            }
            {
                const PhaseScope phase(device, Phase::backward, 0);
                const Tensor& dy = loss.gradient;
                device.accumulate_rows(bias.gradient, dy);
                add_product(device, b.gradient, g, dy);
                const Tensor dg = device.matmul(dy, b.value, transposed_b());
                const Tensor dh = device.gelu_backward(h, dg);
                add_product(device, a.gradient, x, dh);
                const Tensor dx = device.matmul(dh, a.value, transposed_b());
                tp->all_reduce(dx).wait();
                device.add(dx, dy);
            }
            for (Parameter* parameter : {&a, &b, &bias})
                dp->all_reduce(parameter->gradient).wait();
            const PhaseScope phase(device, Phase::update);
            optimizer.step();
        }
    });
}

TEST_CASE("correct: Megatron sequence parallelism with a norm", "[faults]") {
    must_stay_silent(2, [](Rank& rank) {
        Device& device = rank.device();
        Communicator& tp = rank.world();
        const int t = rank.index();
        // Each rank has 4 of the sequence's 8 rows. The norm's parameters are replicas.
        Parameter scale("norm.weight", device.empty({6}, DType::f64),
                        device.zeros({6}, DType::f64));
        Parameter shift("norm.bias", device.zeros({6}, DType::f64),
                        device.zeros({6}, DType::f64));
        Parameter a("a", device.empty({6, 4}, DType::f64),
                    device.zeros({6, 4}, DType::f64));
        Parameter b("b", device.empty({4, 6}, DType::f64),
                    device.zeros({4, 6}, DType::f64));
        device.fill(scale.value, 1);
        device.random_normal(a.value, RandomStream(1, "a"), 0, 0.5, 24 * t);
        device.random_normal(b.value, RandomStream(1, "b"), 0, 0.5, 24 * t);
        Sgd optimizer({&scale, &shift, &a, &b});
        for (int i = 0; i < kSteps; ++i) {
            for (Parameter* parameter : optimizer.parameters())
                parameter->zero_gradient();
            const Tensor x = random_rows(device, "x", 8 * i + 4 * t, 4, 6);
            const Tensor whole = device.empty({8, 6}, DType::f64);
            const Tensor y = device.empty({4, 6}, DType::f64);
            Device::Normalized normal;
            Tensor h;
            {
                const PhaseScope phase(device, Phase::forward, 0);
                normal = device.layer_norm(x, scale.value, shift.value);
                tp.all_gather(whole, normal.y).wait();
                h = device.matmul(whole, a.value);
                tp.reduce_scatter(y, device.matmul(device.tanh(h), b.value)).wait();
                device.add(y, x);
            }
            const LossResult loss = mean_squared_error(
                device, y, random_rows(device, "y", 8 * i + 4 * t, 4, 6), 0.5);
            {
                const PhaseScope phase(device, Phase::backward, 0);
                const Tensor dy = device.empty({8, 6}, DType::f64);
                tp.all_gather(dy, loss.gradient).wait();
                const Tensor g = device.tanh(h);
                add_product(device, b.gradient, g, dy);
                const Tensor dh =
                    device.tanh_backward(g, device.matmul(dy, b.value, transposed_b()));
                add_product(device, a.gradient, whole, dh);
                const Tensor dn = device.empty({4, 6}, DType::f64);
                tp.reduce_scatter(dn, device.matmul(dh, a.value, transposed_b())).wait();
                device.layer_norm_backward_weight(scale.gradient, shift.gradient, dn, x,
                                                  normal);
            }
            tp.all_reduce(scale.gradient).wait();
            tp.all_reduce(shift.gradient).wait();
            optimizer.step();
        }
    });
}

TEST_CASE("correct: 1F1B over two stages, and data parallelism", "[faults]") {
    must_stay_silent(4, [](Rank& rank) {
        Device& device = rank.device();
        const int stage = rank.index() % 2;
        const auto pp = rank.world().split(rank.index() / 2, stage, "pp");
        const auto dp = rank.world().split(stage, rank.index() / 2, "dp");
        const ParameterInit init{device, DType::f64, 5, ""};
        Linear layer(init.child("stage" + std::to_string(stage)), 6, 6);
        Sgd optimizer(layer.parameters());
        const int m = 4;
        const auto empty = [&] { return device.empty({4, 6}, DType::f64); };
        for (int i = 0; i < kSteps; ++i) {
            zero_gradients(layer);
            const auto rows = [&](const std::string& name, int index) {
                const int first = 4 * (8 * i + 4 * (rank.index() / 2) + index);
                return random_rows(device, name, first, 4, 6);
            };
            std::vector<Saved> saved(m);
            const auto forward = [&](const Tensor& x, int index) {
                const PhaseScope phase(device, Phase::forward, index);
                return layer.forward(x, saved[static_cast<std::size_t>(index)]);
            };
            const auto backward = [&](const Tensor& dy, int index) {
                const PhaseScope phase(device, Phase::backward, index);
                return layer.backward(dy, saved[static_cast<std::size_t>(index)]);
            };
            if (stage == 0) {
                Tensor y = forward(rows("x", 0), 0);
                pp->send(y, 1).wait();
                for (int k = 1; k < m; ++k) {
                    y = forward(rows("x", k), k);
                    const Tensor dy = empty();
                    pp->group().send(y, 1).recv(dy, 1).start().wait();
                    backward(dy, k - 1);
                }
                const Tensor dy = empty();
                pp->recv(dy, 1).wait();
                backward(dy, m - 1);
            } else {
                Tensor x = empty();
                pp->recv(x, 0).wait();
                for (int k = 0; k < m; ++k) {
                    const Tensor y = forward(x, k);
                    const LossResult loss =
                        mean_squared_error(device, y, rows("y", k), 1.0 / 8);
                    const Tensor dx = backward(loss.gradient, k);
                    x = empty();
                    if (k + 1 < m)
                        pp->group().send(dx, 0).recv(x, 0).start().wait();
                    else
                        pp->send(dx, 0).wait();
                }
            }
            for (Parameter* parameter : layer.parameters())
                dp->all_reduce(parameter->gradient).wait();
            const PhaseScope phase(device, Phase::update);
            optimizer.step();
        }
    });
}

TEST_CASE("correct: an embedding tied over first and last stage", "[faults]") {
    must_stay_silent(2, [](Rank& rank) {
        Device& device = rank.device();
        Communicator& pp = rank.world();
        const ParameterInit init{device, DType::f64, 5, ""};
        Parameter table(init, "embedding.weight", {10, 6});
        device.random_normal(table.value, RandomStream(5, "embedding.weight"), 0, 1);
        Sgd optimizer({&table});
        HostTensor ids({4}, DType::i32);
        for (int i = 0; i < kSteps; ++i) {
            table.zero_gradient();
            for (int k = 0; k < 4; ++k)
                ids.set(k, (i + 3 * k) % 10);
            const Tensor tokens = device.upload(ids);
            if (rank.index() == 0) {
                Tensor x;
                {
                    const PhaseScope phase(device, Phase::forward, 0);
                    x = device.embedding(table.value, tokens);
                }
                pp.send(x, 1).wait();
                const Tensor dx = device.empty({4, 6}, DType::f64);
                pp.recv(dx, 1).wait();
                const PhaseScope phase(device, Phase::backward, 0);
                device.embedding_backward(table.gradient, tokens, dx);
            } else {
                const Tensor x = device.empty({4, 6}, DType::f64);
                pp.recv(x, 0).wait();
                LossResult loss;
                {
                    const PhaseScope phase(device, Phase::forward, 0);
                    const Tensor logits = device.matmul(x, table.value, transposed_b());
                    loss = cross_entropy_loss(device, logits, tokens);
                }
                const PhaseScope phase(device, Phase::backward, 0);
                add_product(device, table.gradient, loss.gradient, x);
                const Tensor dx = device.matmul(loss.gradient, table.value);
                pp.send(dx, 0).wait();
            }
            pp.all_reduce(table.gradient).wait();
            optimizer.step();
        }
    });
}

TEST_CASE("correct: keys and values move round a ring, double buffered", "[faults]") {
    must_stay_silent(4, [](Rank& rank) {
        Device& device = rank.device();
        Communicator& cp = rank.world();
        const int n = rank.size();
        const Tensor q = random_rows(device, "q", 4 * rank.index(), 4, 6);
        Tensor here = random_rows(device, "k", 4 * rank.index(), 4, 6);
        Tensor there = device.empty({4, 6}, DType::f64);
        const Tensor scores = device.zeros({4, 16}, DType::f64);
        for (int hop = 0; hop < n; ++hop) {
            Work moving = cp.group()
                              .send(here, (rank.index() + 1) % n)
                              .recv(there, (rank.index() + n - 1) % n)
                              .start();
            const Tensor block = device.matmul(q, here, transposed_b());
            const int owner = (rank.index() + n - hop) % n;
            device.copy_columns(scores, 4 * owner, block, 0, 4);
            moving.wait();
            std::swap(here, there);
        }
        rank.keep("scores", device.softmax(scores));
    });
}

TEST_CASE("correct: tokens to experts and back", "[faults]") {
    must_stay_silent(4, [](Rank& rank) {
        Device& device = rank.device();
        Communicator& ep = rank.world();
        Parameter expert("expert", device.empty({6, 6}, DType::f64),
                         device.zeros({6, 6}, DType::f64));
        device.random_normal(
            expert.value, RandomStream(1, "expert" + std::to_string(rank.index())), 0, 1);
        Parameter router("router", device.empty({6, 4}, DType::f64),
                         device.zeros({6, 4}, DType::f64));
        device.random_normal(router.value, RandomStream(1, "router"), 0, 1);
        Sgd optimizer({&expert, &router});
        for (int i = 0; i < kSteps; ++i) {
            expert.zero_gradient();
            router.zero_gradient();
            const Tensor x = random_rows(device, "x", 8 * (4 * i + rank.index()), 8, 6);
            const Tensor sent = device.empty({8, 6}, DType::f64);
            const Tensor back = device.empty({8, 6}, DType::f64);
            ep.all_to_all(sent, x).wait();
            const Tensor y = device.matmul(sent, expert.value);
            ep.all_to_all(back, y).wait();
            const LossResult loss = mean_squared_error(
                device, back, random_rows(device, "y", 8 * rank.index(), 8, 6), 0.25);
            const Tensor dy = device.empty({8, 6}, DType::f64);
            ep.all_to_all(dy, loss.gradient).wait();
            add_product(device, expert.gradient, sent, dy);
            const Tensor scores = device.matmul(x, router.value);
            const LossResult balance = mean_squared_error(
                device, scores, random_rows(device, "t", 8 * rank.index(), 8, 4), 0.25);
            add_product(device, router.gradient, x, balance.gradient);
            ep.all_reduce(router.gradient).wait();
            optimizer.step();
        }
    });
}

TEST_CASE("correct: weights stashed for the backward of an older version", "[faults]") {
    must_stay_silent(2, [](Rank& rank) {
        Device& device = rank.device();
        const Tensor weight = device.empty({6, 6}, DType::f64);
        device.random_normal(
            weight, RandomStream(1, "stage" + std::to_string(rank.index())), 0, 0.5);
        const Tensor gradient = device.zeros({6, 6}, DType::f64);
        std::vector<Tensor> stash;
        std::vector<Tensor> inputs;
        for (int m = 0; m < 6; ++m) {
            const Tensor x = random_rows(device, "x", 4 * m, 4, 6);
            {
                const PhaseScope phase(device, Phase::forward, m);
                stash.push_back(device.empty({6, 6}, DType::f64));
                device.copy(stash.back(), weight);
                inputs.push_back(x);
                (void)device.matmul(x, stash.back());
            }
            if (m < 2) continue;
            const auto old = static_cast<std::size_t>(m - 2);
            {
                const PhaseScope phase(device, Phase::backward, m - 2);
                const Tensor dy = random_rows(device, "dy", 4 * m, 4, 6);
                (void)device.matmul(dy, stash[old], transposed_b());
                device.fill(gradient, 0);
                add_product(device, gradient, inputs[old], dy);
            }
            const PhaseScope phase(device, Phase::update);
            device.sgd(weight, gradient, Tensor(), {});
        }
    });
}

TEST_CASE("correct: one buffer used by two communicators in turn", "[faults]") {
    must_stay_silent(4, [](Rank& rank) {
        Device& device = rank.device();
        const auto pair = rank.world().split(rank.index() / 2, rank.index(), "pair");
        const Tensor x = device.zeros({8}, DType::f64);
        const Tensor y = device.zeros({8}, DType::f64);
        for (int i = 0; i < kSteps; ++i) {
            Work first = pair->all_reduce(x, Reduction::maximum);
            device.fill(y, i);
            first.wait();
            Work second = rank.world().all_reduce(x, Reduction::maximum);
            Work third = pair->all_reduce(y, Reduction::maximum);
            second.wait();
            device.scale(x, 0.5);
            third.wait();
        }
    });
}

TEST_CASE("correct: dropout, one mask on tensor shards and others on replicas",
          "[faults]") {
    must_stay_silent(4, [](Rank& rank) {
        Device& device = rank.device();
        const int t = rank.index() % 2;
        const int d = rank.index() / 2;
        const auto tp = rank.world().split(d, t, "tp");
        const auto dp = rank.world().split(t, d, "dp");
        Parameter b("b", device.empty({4, 6}, DType::f64),
                    device.zeros({4, 6}, DType::f64));
        device.random_normal(b.value, RandomStream(1, "b"), 0, 0.5, 24 * t);
        Sgd optimizer({&b});
        for (int i = 0; i < kSteps; ++i) {
            b.zero_gradient();
            const Tensor x = random_rows(device, "h", 4 * (2 * i + d), 4, 8);
            const Tensor mine = device.empty({4, 4}, DType::f64);
            device.copy_columns(mine, 0, x, 4 * t, 4);
            const Tensor mask = device.empty({4, 6}, DType::f64);
            LossResult loss;
            {
                const PhaseScope phase(device, Phase::forward, 0);
                const Tensor y = device.matmul(mine, b.value);
                tp->all_reduce(y).wait();
                device.random_uniform(mask, RandomStream(9 + d, "dropout"), 0, 2, 24 * i);
                device.multiply(y, mask);
                loss = mean_squared_error(
                    device, y, random_rows(device, "y", 4 * (2 * i + d), 4, 6), 0.5);
            }
            const PhaseScope phase(device, Phase::backward, 0);
            device.multiply(loss.gradient, mask);
            add_product(device, b.gradient, mine, loss.gradient);
            dp->all_reduce(b.gradient).wait();
            optimizer.step();
        }
    });
}

}  // namespace lockstep::test
