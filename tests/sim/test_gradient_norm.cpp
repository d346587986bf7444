// Gradient norms over a mesh, each with one mistake; also reductions that add up
// different parameters.

#include <functional>
#include <string>

#include "sim/cluster.hpp"
#include "src/comm/mesh.hpp"
#include "src/parallel/flat_buffer.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/parallel/train_step.hpp"
#include "src/parallel/zero_1.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/gpt_on_mesh.hpp"
#include "src/pipeline/pipeline_gpt.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

using SquaresOf =
    std::function<Tensor(Device&, Mesh&, const std::vector<Parameter*>& parameters)>;

std::string found(int ranks, sim::CheckLevel level, const Program& program) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.check = level;
    try {
        sim::make_cluster(options)->run(program);
    } catch (const FaultError& error) {
        return error.diagnosis().fault + ": " + error.diagnosis().title + "\n" +
               error.diagnosis().sentence + "\n" + error.diagnosis().cause;
    }
    return "nothing was found";
}

/// Two steps of a GPT on pp 2 x dp 2 x tp 2, clipped by the norm from `squares`.
std::string clipped_by(const SquaresOf& squares, bool has_tie = true) {
    const PipelinePlan plan(make_schedule("1f1b", {2, 2, 1}));
    GptSizes sizes{11, 4, 2, {8, 2}};
    sizes.tied = has_tie;
    return found(8, sim::CheckLevel::full, [&](Rank& rank) {
        Device& device = rank.device();
        Mesh mesh(rank.world(), {{"pp", 2}, {"dp", 2}, {"tp", 2}});
        TensorParallel tp(device, mesh["tp"]);
        const GptKit kit = tensor_parallel({}, tp);
        const GptStage stage =
            make_gpt_stage({device, DType::f64, 1, ""}, sizes, plan.schedule(),
                           mesh.coordinate("pp"), cut_gpt(sizes, plan.schedule()), kit);
        Pipeline pipeline(device, mesh["pp"], plan, stage.modules(),
                          gpt_boundary(sizes, DType::f64, kit));
        pipeline.reduce_over(mesh["dp"]);
        const auto tied = tie_gpt(pipeline, stage, plan.schedule(), mesh["pp"]);
        const auto parameters = stage.parameters();
        Sgd optimizer(parameters, {0.1, 0, 0});
        for (int step = 0; step < 2; ++step) {
            std::vector<MicroBatch> batches;
            for (int i = 0; i < 2; ++i) {
                HostTensor ids({4, 1}, DType::i32);
                for (int e = 0; e < 4; ++e)
                    ids.set(e, (3 * e + i + 2 * mesh.coordinate("dp") + step) % 11);
                batches.push_back({device.upload(ids), device.upload(ids), 0.25});
            }
            pipeline.run(kit.loss(sizes), batches);
            const Tensor norm = squares(device, mesh, parameters);
            device.clip_factor(norm, norm, 0.5);
            for (const Parameter* parameter : parameters)
                device.scale(parameter->gradient, norm);
            optimizer.step();
        }
    });
}

/// Adds up the squares of the parameters that `counts` selects, then all-reduces the sum
/// along each of these axes.
SquaresOf summed(const std::function<bool(const Parameter&)>& counts,
                 const std::vector<std::string>& axes) {
    return [=](Device& device, Mesh& mesh, const std::vector<Parameter*>& parameters) {
        Tensor squares = device.zeros({1}, DType::f64);
        for (const Parameter* parameter : parameters)
            if (counts(*parameter)) device.sum_of_squares(squares, parameter->gradient);
        for (const std::string& axis : axes)
            mesh[axis].all_reduce(squares).wait();
        return squares;
    };
}

bool once(const Parameter& parameter) {
    for (const Placement& placement : parameter.placements)
        if (placement.kind != Placement::Kind::sharded && placement.line->rank() != 0)
            return false;
    return true;
}

/// Like `once`, but along the axis `line` every replica counts.
std::function<bool(const Parameter&)> every(const std::string& line) {
    return [line](const Parameter& parameter) {
        for (const Placement& placement : parameter.placements)
            if (placement.kind != Placement::Kind::sharded &&
                placement.line->name() != line && placement.line->rank() != 0)
                return false;
        return true;
    };
}

bool says(const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("The norm over a mesh passes, by one function and by hand", "[sim]") {
    CHECK(clipped_by([](Device& device, Mesh& mesh, const auto& parameters) {
              return squared_gradient_norm(device, mesh.world(), parameters);
          }) == "nothing was found");
    CHECK(clipped_by(summed(once, {"pp", "dp", "tp"})) == "nothing was found");
}

TEST_CASE("A replicated parameter that counts t times in a norm is found", "[sim]") {
    const std::string over_tp = clipped_by(summed(every("tp"), {"pp", "dp", "tp"}));
    says(over_tp, "F22: a gradient counts more than once in a norm");
    says(over_tp, "counts 2 times");
    says(over_tp, "hold the same gradient along tp");
    const std::string over_dp = clipped_by(summed(every("dp"), {"pp", "dp", "tp"}));
    says(over_dp, "hold the same gradient along dp");
    const std::string tied = clipped_by(summed(every("tied"), {"pp", "dp", "tp"}));
    says(tied, "the gradient of transformer.wte.weight counts 2 times");
    says(tied, "hold the same gradient along tied");
}

TEST_CASE("A stage, and a shard, that a norm leaves out are found", "[sim]") {
    const std::string stage = clipped_by(summed(once, {"dp", "tp"}), /*has_tie=*/false);
    says(stage, "F23: a gradient is missing in a norm");
    says(stage, "which the same clip scales: the two ranks hold");
    says(stage,
         "different parts of the model along pp, but their squares are not added up over "
         "it");
    // Each rank scales by its own norm, so replicas drift apart. The drift is found
    // first, and the norms explain the drift.
    const std::string shard = clipped_by(summed(once, {"dp", "pp"}));
    says(shard, "F23: a gradient is missing in a norm");
    says(shard,
         "different parts of the model along tp, but their squares are not added up over "
         "it");
    const std::string own = clipped_by(summed([](const auto&) { return true; }, {}));
    says(own, "F23: a gradient is missing in a norm");
    says(own, "also sum the squares over");
    // Only one copy's square counts, so the ranks of the other copies must receive it.
    const std::string copy = clipped_by(summed(once, {"pp", "tp"}));
    says(copy, "F23: a gradient is missing in a norm");
    says(copy, "rank 2 clips");
    says(copy, "the copy on rank 0 counts");
    says(copy, "the squares are not added up over dp");
    const std::string forgotten = clipped_by(summed(
        [](const Parameter& parameter) {
            return once(parameter) && parameter.name() != "transformer.wpe.weight";
        },
        {"pp", "dp", "tp"}));
    says(forgotten, "gradient of transformer.wpe.weight");
}

TEST_CASE("Layers may be clipped one by one, each by its own norm", "[sim]") {
    CHECK(found(2, sim::CheckLevel::full, [](Rank& rank) {
              Device& device = rank.device();
              const auto line = rank.world().split(0, rank.index(), "pp");
              const ParameterInit init{device, DType::f64, 1,
                                       "stage " + std::to_string(rank.index())};
              Parameter one(init, "one", Shape{4}), two(init, "two", Shape{4});
              Sgd optimizer({&one, &two});
              for (int step = 0; step < 3; ++step) {
                  for (Parameter* layer : {&one, &two}) {
                      device.fill(layer->value, 1);
                      device.fill(layer->gradient, rank.index() + 1);
                      const Tensor norm = device.zeros({1}, DType::f64);
                      device.sum_of_squares(norm, layer->gradient);
                      device.clip_factor(norm, norm, 0.5);
                      device.scale(layer->gradient, norm);
                  }
                  optimizer.step();
              }
          }) == "nothing was found");
}

namespace {

using ShardNorm = std::function<Tensor(Rank&, Zero1&)>;

Tensor own_squares(Rank& rank, Zero1& sync) {
    Tensor squares = rank.device().zeros({1}, DType::f64);
    for (const Parameter* shard : sync.shards())
        rank.device().sum_of_squares(squares, shard->gradient);
    return squares;
}

Tensor whole_squares(Rank& rank, Zero1& sync) {
    return squared_gradient_norm(rank.device(), rank.world(), sync.shards());
}

void clip(Rank& rank, Zero1& sync, const ShardNorm& norm) {
    const Tensor factor = norm(rank, sync);
    rank.device().clip_factor(factor, factor, 0.5);
    for (const Parameter* shard : sync.shards())
        rank.device().scale(shard->gradient, factor);
}

/// Two steps of a GPT by ZeRO-1 on two ranks, clipped by `norm`.
std::string shards_clipped_by(const ShardNorm& norm, bool before_finish = false) {
    return found(2, sim::CheckLevel::full, [&](Rank& rank) {
        Device& device = rank.device();
        const auto gpt = make_gpt({device, DType::f64, 1, ""}, {11, 4, 1, {8, 2}});
        declare_replicas_of(rank.world(), *gpt);
        Zero1 sync(device, rank.world(), gpt->parameters());
        Sgd optimizer(sync.shards(), {0.1, 0, 0});
        for (int step = 0; step < 2; ++step) {
            HostTensor ids({4, 1}, DType::i32);
            for (int e = 0; e < 4; ++e)
                ids.set(e, (3 * e + rank.index() + step) % 11);
            const MicroBatch batch{device.upload(ids), device.upload(ids), 0.5};
            sync.begin();
            accumulate_gradients(device, *gpt, cross_entropy_loss, {&batch, 1});
            if (before_finish) clip(rank, sync, norm);
            sync.finish();
            if (!before_finish) clip(rank, sync, norm);
            sync.update(optimizer);
        }
    });
}

}  // namespace

TEST_CASE("A norm of ZeRO-1's shards passes, and each wrong norm is found", "[sim]") {
    CHECK(shards_clipped_by(whole_squares) == "nothing was found");
    CHECK(shards_clipped_by([](Rank& rank, Zero1& sync) {
              Tensor squares = own_squares(rank, sync);
              rank.world().all_reduce(squares).wait();
              return squares;
          }) == "nothing was found");
    says(shards_clipped_by(own_squares), "F23: a gradient is missing in a norm");
    const std::string twice = shards_clipped_by([](Rank& rank, Zero1& sync) {
        Tensor squares = own_squares(rank, sync);
        rank.device().sum_of_squares(squares, sync.shards().front()->gradient);
        rank.world().all_reduce(squares).wait();
        return squares;
    });
    says(twice, "F22: a gradient counts more than once in a norm");
    says(twice, "counts 2 times");
    try {
        shards_clipped_by(whole_squares, /*before_finish=*/true);
        FAIL("a norm of gradients that are not yet summed was accepted");
    } catch (const UsageError& error) {
        says(error.what(), "has only this rank's terms");
    }
}

TEST_CASE("A shard may end inside a parameter that a tensor group replicates", "[sim]") {
    // With these sizes each rank of dp updates half of a layer norm's weight.
    GptSizes sizes{52, 16, 5, {32, 16}};
    sizes.block.kv_heads = 8;
    sizes.block.norm = NormKind::rms_norm;
    sizes.block.mlp = MlpKind::swiglu;
    sizes.block.inner = 48;
    sizes.block.rotary_base = 10000;
    sizes.block.bias = false;
    sizes.tied = true;
    MeshOptions options;
    options.axes = {{"dp", 2}, {"tp", 4}};
    options.zero = GENERATE(1, 2, 3);
    const DType dtype = GENERATE(DType::f32, DType::bf16);
    CAPTURE(options.zero, dtype);
    const MeshPlan plan(sizes, options);
    int cut = 0;
    CHECK(found(8, sim::CheckLevel::full, [&](Rank& rank) {
              GptOnMesh gpt(rank, plan, dtype, 1);
              for (const Parameter* shard : gpt.sync().shards())
                  if (shard->name().ends_with("ln_2.weight") &&
                      shard->shape().elements() < 32)
                      ++cut;
              const auto optimizer =
                  make_optimizer<Sgd>(gpt.sync().shards(), SgdOptions{0.1, 0, 0});
              const HostTensor ids({16, 1}, DType::i32);
              const MicroBatch batch = gpt.micro_batch(ids, ids);
              for (int step = 0; step < 2; ++step)
                  gpt.step({&batch, 1}, *optimizer, 0.5);
          }) == "nothing was found");
    CHECK(cut >= 8);
}

TEST_CASE("Squares may be added up, and gradients scaled, in any ranges", "[sim]") {
    const auto clipped = [](bool pieces_are_counted, bool pieces_are_scaled) {
        return found(1, sim::CheckLevel::full, [&](Rank& rank) {
            Device& device = rank.device();
            const ParameterInit init{device, DType::f64, 1, ""};
            Parameter one(init, "one", Shape{6}), two(init, "two", Shape{4});
            const Tensor flat = make_flat(device, {&one, &two}, &Parameter::gradient);
            device.fill(flat, 1);
            const Tensor factor = device.zeros({1}, DType::f64);
            const auto each = [&](bool pieces, const auto& use) {
                if (!pieces) return use(flat);
                use(flat.slice(0, 3));
                use(flat.slice(3, 5));  // of both parameters
                use(flat.slice(8, 2));
            };
            each(pieces_are_counted,
                 [&](const Tensor& x) { device.sum_of_squares(factor, x); });
            device.clip_factor(factor, factor, 0.5);
            each(pieces_are_scaled, [&](const Tensor& x) { device.scale(x, factor); });
        });
    };
    for (const bool counted : {false, true})
        for (const bool scaled : {false, true})
            CHECK(clipped(counted, scaled) == "nothing was found");
}

TEST_CASE("A sum of different parameters is found at once, by their names", "[sim]") {
    const std::string text = found(2, sim::CheckLevel::cheap, [](Rank& rank) {
        const ParameterInit init{rank.device(), DType::f32, 1,
                                 "experts." + std::to_string(rank.index())};
        const Parameter expert(init, "weight", Shape{4});
        rank.world().all_reduce(expert.gradient).wait();
    });
    says(text, "F26: different parameters are added up");
    says(text, "parameter experts.1.weight against experts.0.weight");
    CHECK(found(2, sim::CheckLevel::cheap, [](Rank& rank) {
              const ParameterInit init{rank.device(), DType::f32, 1, ""};
              const Parameter weight(init, "weight", Shape{4});
              const Tensor other = rank.device().zeros({4}, DType::f32);
              rank.world().all_reduce(rank.index() == 0 ? weight.gradient : other).wait();
          }) == "nothing was found");
}

TEST_CASE("A norm that cannot be followed is not judged", "[sim]") {
    // Each rank divides the squares by the number of copies. The result is right, but the
    // checker cannot follow the division.
    CHECK(clipped_by(
              [](Device& device, Mesh& mesh, const std::vector<Parameter*>& parameters) {
                  Tensor squares = device.zeros({1}, DType::f64);
                  for (const Parameter* parameter : parameters) {
                      double copies = 1;
                      for (const Placement& placement : parameter->placements)
                          if (placement.kind != Placement::Kind::sharded)
                              copies *= placement.line->size();
                      const Tensor own = device.zeros({1}, DType::f64);
                      device.sum_of_squares(own, parameter->gradient);
                      device.scale(own, 1 / copies);
                      device.add(squares, own);
                  }
                  mesh.world().all_reduce(squares).wait();
                  return squares;
              }) == "nothing was found");
}

TEST_CASE("Ranks that train separate models may use separate norms", "[sim]") {
    CHECK(found(4, sim::CheckLevel::full, [](Rank& rank) {
              Device& device = rank.device();
              const auto pair =
                  rank.world().split(rank.index() / 2, rank.index(), "pair");
              const ParameterInit init{device, DType::f64, 1,
                                       "model " + std::to_string(rank.index() / 2)};
              Parameter weight(init, "weight", Shape{4});
              device.fill(weight.value, 1);
              const int model = rank.index() / 2;
              device.fill(weight.gradient, model + 1);
              replicate_over(*pair, {&weight}, Placement::Kind::replicated);
              clip_gradients(device, *pair, {&weight}, 0.5);
          }) == "nothing was found");
}

TEST_CASE("Declared copies with other names may be added up", "[sim]") {
    CHECK(found(2, sim::CheckLevel::cheap, [](Rank& rank) {
              const ParameterInit init{rank.device(), DType::f32, 1,
                                       rank.index() == 0 ? "embed" : "head"};
              Parameter weight(init, "weight", Shape{4});
              rank.device().fill(weight.value, 1);
              replicate_over(rank.world(), {&weight}, Placement::Kind::partial);
              complete_gradients({&weight});
          }) == "nothing was found");
}

TEST_CASE("A sum of different parts of a parameter is found at once", "[sim]") {
    const auto sums = [](const Part& of_0, const Part& of_1, bool sums_values) {
        return found(2, sim::CheckLevel::cheap, [&](Rank& rank) {
            const ParameterInit init{rank.device(), DType::f32, 1, "layer"};
            const Parameter weight(init, "weight", rank.index() == 0 ? of_0 : of_1);
            const auto& summed = sums_values ? weight.value : weight.gradient;
            rank.world().all_reduce(summed).wait();
        });
    };
    const Shape whole{4, 2};
    const Part upper = row_part(whole, 0, 2), lower = row_part(whole, 2, 2);
    for (const bool values : {false, true}) {
        const std::string text = sums(upper, lower, values);
        says(text, "F26: different parts of a parameter are added up");
        says(text,
             "world adds up different parts of layer.weight: rank 1 brings rows 2–3");
        says(text, "but rank 0 rows 0–1 in all_reduce");
        CHECK(sums(upper, upper, values) == "nothing was found");
    }
    says(sums(column_part(whole, 0, 1), column_part(whole, 1, 1), false),
         "rank 1 brings column 1 in");
    // A maximum over different parts is allowed, because nothing is added up.
    CHECK(found(2, sim::CheckLevel::cheap, [&](Rank& rank) {
              const ParameterInit init{rank.device(), DType::f32, 1, ""};
              const Parameter weight(init, "weight", rank.index() == 0 ? upper : lower);
              rank.world().all_reduce(weight.gradient, Reduction::maximum).wait();
          }) == "nothing was found");
}

}  // namespace lockstep::test
