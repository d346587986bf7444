#include "src/nn/parameter.hpp"

#include "src/nn/embedding.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/norm.hpp"
#include "src/nn/sequential.hpp"
#include "tests/nn/finite_difference.hpp"

namespace lockstep::nn_test {

namespace {

/// One layer applied twice: a parameter with two uses in each pass.
class Twice : public Module {
  public:
    explicit Twice(const ParameterInit& init) : linear_(init, 4, 4) {
        for (Parameter* parameter : parameters())
            parameter->uses = 2;
    }
    std::vector<Parameter*> parameters() override { return linear_.parameters(); }

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override {
        return linear_.forward(linear_.forward(x, saved.child(0)), saved.child(1));
    }
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override {
        const Tensor middle = linear_.backward_input(dy, saved.child(1));
        return linear_.backward_input(middle, saved.child(0));
    }
    void do_backward_weight(Saved& saved) override {
        linear_.backward_weight(saved.child(1));
        linear_.backward_weight(saved.child(0));
    }

    Linear linear_;
};

}  // namespace

TEST_CASE("Parameters announce gradients once a pass, those of the last layer first",
          "[nn][sim]") {
    OneDevice one;
    Sequential chain;
    chain.add<Linear>(one.init("first"), 4, 6);
    chain.add<LayerNorm>(one.init("norm"), 6);
    chain.add<Linear>(one.init("second"), 6, 3);
    std::vector<std::string> announced;
    for (Parameter* parameter : chain.parameters())
        parameter->on_gradient([&](Parameter& p) { announced.push_back(p.name()); });
    const std::vector<std::string> expected = {"second.weight", "second.bias",
                                               "norm.weight",   "norm.bias",
                                               "first.weight",  "first.bias"};
    const HostTensor x = normal_values({2, 4}, "x"), dy = normal_values({2, 3}, "dy");
    for (const Backward backward : {Backward::whole, Backward::halves}) {
        announced.clear();
        gradients(one.device, chain, x, dy, backward);
        CHECK(announced == expected);
    }
}

TEST_CASE("A tied parameter announces each pass, and the step in the last", "[nn][sim]") {
    OneDevice one;
    Twice twice(one.init("tied"));
    Parameter& weight = *twice.parameters()[0];
    std::string announced;
    weight.on_gradient([&](Parameter&) { announced += "step "; });
    const Parameter::HookId id =
        weight.on_pass([&](Parameter&) { announced += "pass "; });
    const Tensor x = one.device.upload(normal_values({3, 4}, "x"));
    const auto pass = [&] {
        Saved saved;
        twice.forward(x, saved);
        twice.backward(x, saved);
    };
    zero_gradients(twice, 3);
    for (int i = 0; i < 3; ++i)
        pass();
    CHECK(announced == "pass pass pass step ");
    weight.remove_hook(id);
    zero_gradients(twice);
    pass();
    CHECK(announced == "pass pass pass step step ");
    weight.complete = false;
    weight.set_complete();
    CHECK(weight.complete);
    CHECK(announced == "pass pass pass step step step ");
}

TEST_CASE("A tied parameter announces once, when its gradient is complete", "[nn][sim]") {
    OneDevice one;
    Twice twice(one.init("tied"));
    const HostTensor x = normal_values({3, 4}, "x");
    require_true_gradients(one.device, twice, x);

    std::vector<HostTensor> announced;
    twice.parameters()[0]->on_gradient(
        [&](Parameter& p) { announced.push_back(one.device.download(p.gradient)); });
    const Gradients result = gradients(one.device, twice, x, normal_values({3, 4}, "dy"));
    REQUIRE(announced.size() == 1);
    CHECK(announced[0] == result.parameters.at("tied.weight"));

    // After another micro-batch without zero_gradients, the gradient is announced again.
    Saved saved;
    const Tensor y = twice.forward(one.device.upload(x), saved);
    twice.backward(y, saved);
    CHECK(announced.size() == 2);
}

TEST_CASE("A parameter can have memory only during its uses", "[nn][sim]") {
    OneDevice one;
    Sequential plain, sharded;
    for (Sequential* model : {&plain, &sharded}) {
        model->add<Embedding>(one.init("table"), 5, 4);
        model->add<LayerNorm>(one.init("norm"), 4);
        model->add<Linear>(one.init("out"), 4, 3);
    }
    const HostTensor ids = i32({2, 2}, {3, 1, 1, 4}), dy = normal_values({2, 2, 3}, "dy");

    // Like ZeRO-3: gathers the value before each use, frees the value after the use, and
    // keeps only the announced gradient.
    std::map<std::string, HostTensor> values, sums;
    std::vector<std::string> here;
    for (Parameter* parameter : sharded.parameters()) {
        values[parameter->name()] = one.device.download(parameter->value);
        parameter->value = {};
        parameter->gradient = {};
        parameter->on_use([&](Parameter& p, Use use) {
            if (reads_value(use)) p.value = one.device.upload(values.at(p.name()));
            if (adds_gradient(use)) p.gradient = one.device.zeros(p.shape(), DType::f64);
            here.push_back(p.name());
        });
        parameter->on_gradient(
            [&](Parameter& p) { sums[p.name()] = one.device.download(p.gradient); });
        parameter->on_release([&](Parameter& p, Use) {
            p.value = {};
            p.gradient = {};
            std::erase(here, p.name());
        });
    }

    Saved saved_plain, saved;
    const Tensor y = sharded.forward(one.device.upload(ids), saved);
    CHECK(one.device.download(y) ==
          one.device.download(plain.forward(one.device.upload(ids), saved_plain)));
    CHECK(here.empty());
    sharded.backward(one.device.upload(dy), saved);
    plain.backward(one.device.upload(dy), saved_plain);
    CHECK(here.empty());
    for (const Parameter* parameter : plain.parameters())
        CHECK(sums.at(parameter->name()) == one.device.download(parameter->gradient));
}

TEST_CASE("Hooks surround forward and backward, once each for every layer", "[nn][sim]") {
    OneDevice one;
    Sequential chain;
    chain.add<Linear>(one.init("a"), 2, 2, false);
    chain.add<Linear>(one.init("b"), 2, 2, false);
    std::string events;
    for (Parameter* parameter : chain.parameters()) {
        parameter->on_use(
            [&](Parameter& p, Use) { events += "+" + p.name().substr(0, 1); });
        parameter->on_gradient(
            [&](Parameter& p) { events += "!" + p.name().substr(0, 1); });
        parameter->on_release(
            [&](Parameter& p, Use) { events += "-" + p.name().substr(0, 1); });
    }
    const Tensor x = one.device.zeros({1, 2}, DType::f64);
    Saved saved;
    chain.forward(x, saved);
    CHECK(events == "+a-a+b-b");
    events.clear();
    chain.backward(x, saved);
    CHECK(events == "+b!b-b+a!a-a");
    chain.forward(x, saved);
    events.clear();
    chain.backward_input(x, saved);
    CHECK(events == "+b-b+a-a");
    events.clear();
    chain.backward_weight(saved);
    CHECK(events == "+b!b-b+a!a-a");
}

TEST_CASE("zero_gradients clears gradients, and forgets an incomplete pass",
          "[nn][sim]") {
    OneDevice one;
    Twice twice(one.init("tied"));
    Parameter& weight = *twice.parameters()[0];
    int announced = 0;
    weight.on_gradient([&](Parameter&) { ++announced; });
    weight.accumulated();
    zero_gradients(twice);
    weight.accumulated();
    CHECK(announced == 0);
    weight.accumulated();
    CHECK(announced == 1);

    one.device.fill(weight.gradient, 3);
    zero_gradients(twice);
    CHECK(largest(one.device.download(weight.gradient)) == 0);
    weight.gradient = {};
    CHECK_NOTHROW(zero_gradients(twice));
}

TEST_CASE("A parameter can use existing tensors", "[nn][sim]") {
    OneDevice one;
    const Tensor flat = one.device.zeros({10}, DType::f64);
    Parameter shard("shard", flat.rows(4, 3), flat.rows(7, 3));
    CHECK(shard.name() == "shard");
    CHECK(shard.shape() == Shape{3});
    one.device.fill(flat, 2);
    shard.zero_gradient();
    CHECK(one.device.download(flat) == f64({10}, {2, 2, 2, 2, 2, 2, 2, 0, 0, 0}));
}

}  // namespace lockstep::nn_test
