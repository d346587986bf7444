#include "tests/parallel/context_training.hpp"

#include <utility>
#include <vector>

#include "src/comm/chunks.hpp"
#include "src/comm/mesh.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/train_step.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

/// Columns of (tokens, batch).
HostTensor columns(const HostTensor& ids, const Chunk& of) {
    HostTensor own({ids.shape()[0], of.count}, ids.dtype());
    for (std::int64_t i = 0; i < own.elements(); ++i)
        own.set(i, ids.at(i / of.count * ids.shape()[1] + of.begin + i % of.count));
    return own;
}

/// This rank's part of a step's batch, which gpt_training makes so.
MicroBatch own_part(Device& device, const Lessons& lessons, int step, const Mesh& mesh,
                    const TokenDeal& tokens) {
    const HostTensor ids =
        ids_below({lessons.length + 1, lessons.batch}, lessons.sizes.vocabulary,
                  "tokens" + std::to_string(step));
    const Chunk own = chunk(lessons.batch, mesh.size("dp"), mesh.coordinate("dp"));
    const auto upload = [&](const HostTensor& whole) {
        return device.upload(dealt_rows(columns(whole, own), tokens));
    };
    return {upload(ids.rows(0, lessons.length)), upload(ids.rows(1, lessons.length)),
            static_cast<double>(own.count) /
                static_cast<double>(lessons.batch * tokens.ranks)};
}

std::map<std::string, HostTensor> shown(Device& device, Module& model,
                                        Tensor Parameter::*tensor) {
    std::map<std::string, HostTensor> result;
    for (const Parameter* parameter : model.parameters())
        result[parameter->name()] = device.peek(parameter->*tensor);
    return result;
}

Trained train(Rank& rank, const Dealing& dealing, const Lessons& lessons) {
    Device& device = rank.device();
    const Mesh mesh(rank.world(), {{"dp", dealing.dp}, {"cp", dealing.cp}});
    const GptKit kit = dealing.kit(mesh["cp"]);
    const auto model = make_gpt({device, lessons.dtype, 5, ""}, lessons.sizes, kit);
    declare_replicas_of(rank.world(), *model);
    // One whose gradient the ranks do not know to be partial is not added up.
    if (Parameter* forgotten = find_parameter(*model, dealing.forgotten))
        forgotten->placements.clear();
    AllReduceSync sync(model->parameters());
    Sgd optimizer(model->parameters(), SgdOptions{0.1, 0.9, 0});
    Trained trained;
    for (int step = 0; step < lessons.steps; ++step) {
        const std::vector<MicroBatch> mine{
            own_part(device, lessons, step, mesh, kit.tokens)};
        const Tensor share =
            train_step(device, *model, cross_entropy_loss, mine, sync, optimizer);
        trained.losses.push_back(device.peek(share).at(0));
        if (step == 0)
            trained.first_gradients = shown(device, *model, &Parameter::gradient);
    }
    trained.values = shown(device, *model, &Parameter::value);
    return trained;
}

}  // namespace

Dealing dealt_to(int cp, ContextMethod method, TokenOrder order) {
    return {1, cp, [=](Communicator& group) {
                return context_parallel({}, group, method, order);
            }};
}

Trained train_dealt(const Dealing& dealing, const Lessons& lessons) {
    const int ranks = dealing.dp * dealing.cp;
    std::vector<Trained> of_ranks(static_cast<std::size_t>(ranks));
    RunReport report = classroom(ranks, true, dealing.check)->run([&](Rank& rank) {
        of_ranks[static_cast<std::size_t>(rank.index())] = train(rank, dealing, lessons);
    });
    Trained trained = of_ranks.front();
    for (std::size_t rank = 1; rank < of_ranks.size(); ++rank) {
        const Trained& other = of_ranks[rank];
        for (std::size_t step = 0; step < trained.losses.size(); ++step)
            trained.losses[step] += other.losses[step];
        if (!dealing.forgotten.empty()) continue;
        REQUIRE(other.first_gradients == trained.first_gradients);
        REQUIRE(other.values == trained.values);
    }
    trained.report = std::move(report);
    return trained;
}

}  // namespace lockstep::test
