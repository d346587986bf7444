#include "tests/faults/correct.hpp"

#include "tests/catch.hpp"
#include "tests/sim/worlds.hpp"

namespace lockstep::test {

void must_stay_silent(int ranks, const Program& program) {
    std::vector<World> worlds{{sim::ExecutorKind::fibers, 1, std::nullopt},
                              {sim::ExecutorKind::fibers, 2, 5},
                              {sim::ExecutorKind::threads, 1, 11}};
    for (World& world : worlds) {
        world.check = sim::CheckLevel::full;
        std::string found;
        try {
            make_cluster_in(world, ranks)->run(program);
        } catch (const FaultError& fault) {
            found = fault.diagnosis().text();
        }
        CHECK(found == "");
    }
}

void step(Device& device, Optimizer& optimizer) {
    const PhaseScope phase(device, Phase::update);
    optimizer.step();
}

std::unique_ptr<Sequential> make_mlp(Device& device, std::uint64_t seed) {
    auto model = std::make_unique<Sequential>();
    const ParameterInit init{device, DType::f64, seed, ""};
    model->add<Linear>(init.child("up"), 6, 8);
    model->add<Gelu>(device);
    model->add<Linear>(init.child("down"), 8, 4);
    return model;
}

Tensor random_rows(Device& device, const std::string& name, std::int64_t first,
                   std::int64_t rows, std::int64_t columns) {
    Tensor values = device.empty({rows, columns}, DType::f64);
    device.random_normal(values, RandomStream(3, name), 0, 1, first * columns);
    return values;
}

}  // namespace lockstep::test
