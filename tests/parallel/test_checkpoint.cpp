// A training moves through checkpoints between any two layouts and back, bit for bit.

#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "sim/cluster.hpp"
#include "src/comm/mesh.hpp"
#include "src/nn/batch_norm.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/linear.hpp"
#include "src/parallel/bucketed_data_parallel.hpp"
#include "src/parallel/checkpoint.hpp"
#include "src/parallel/checkpoint_index.hpp"
#include "src/parallel/fully_sharded.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/parallel/zero_1.hpp"
#include "src/parallel/zero_2.hpp"
#include "src/parallel/zero_offload.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/pipeline_gpt.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/twin.hpp"
#include "tests/temporary_folder.hpp"

namespace lockstep::test {

namespace {

namespace fs = std::filesystem;

constexpr int kVocabulary = 11;
constexpr std::int64_t kTokens = 5;
constexpr int kSequences = 24;  // in a step, over all replicas
constexpr int kMicroBatches = 2;
constexpr BucketSizes kSmall{400, 400};

enum class Way {
    all_reduce,
    buckets,
    zero_1,
    zero_2,
    hidden,
    rows,
    packed,
    flat,
    offload,
    on_host
};
enum class Updates { sgd, adamw };

/// How a GPT is trained.
struct Layout {
    std::string name;
    int pp = 1, between = 1, dp = 1, tp = 1;
    Way way = Way::all_reduce;
    bool interleaved = false;
    Updates updates = Updates::adamw;
    DType dtype = DType::f64;

    int ranks() const { return pp * between * dp * tp; }
};

std::vector<Layout> layouts() {
    return {
        {"one device"},
        {"dp 4", 1, 1, 4},
        {"dp 3, buckets", 1, 1, 3, 1, Way::buckets},
        {"ZeRO-1 on 3", 1, 1, 3, 1, Way::zero_1},
        {"ZeRO-2 on 2", 1, 1, 2, 1, Way::zero_2},
        {"by rows on 3", 1, 1, 3, 1, Way::rows},
        {"by packed rows on 2", 1, 1, 2, 1, Way::packed},
        {"flat on 3", 1, 1, 3, 1, Way::flat},
        {"hybrid of 2 x 2", 1, 2, 2, 1, Way::rows},
        {"offload on 2", 1, 1, 2, 1, Way::offload},
        {"tp 2 x pp 2", 2, 1, 1, 2},
        {"by rows on the host, on 2", 1, 1, 2, 1, Way::on_host},
        {"tp 2 x ZeRO-1 on 3, hidden", 1, 1, 3, 2, Way::hidden},
        {"pp 2, interleaved, flat on 2 x tp 2", 2, 1, 2, 2, Way::flat, true},
    };
}

GptSizes sizes() {
    GptSizes sizes{kVocabulary, kTokens, 2, {8, 2}};
    return sizes;
}

std::unique_ptr<GradientSync> make_sync(Device& device, Way way, Communicator& line,
                                        Sequential& model) {
    const auto parameters = model.parameters();
    const auto sharded = [&](ShardBy shard_by) {
        return std::make_unique<FullySharded>(device, line, model,
                                              FullyShardedOptions{.shard_by = shard_by});
    };
    switch (way) {
        case Way::all_reduce:
            return std::make_unique<AllReduceSync>(parameters);
        case Way::buckets:
            return std::make_unique<BucketedDataParallel>(
                device, line, parameters,
                BucketOptions{.sizes = kSmall, .rebuild = false});
        case Way::zero_1:
            return std::make_unique<Zero1>(device, line, parameters,
                                           ZeroOptions{.sizes = kSmall});
        case Way::zero_2:
            return std::make_unique<Zero2>(device, line, parameters,
                                           ZeroOptions{.sizes = kSmall});
        case Way::hidden:
            return std::make_unique<Zero1>(
                device, line, parameters,
                ZeroOptions{.sizes = kSmall, .hide_gather = true});
        case Way::on_host:
            return std::make_unique<FullySharded>(device, line, model,
                                                  FullyShardedOptions{.on_host = true});
        case Way::rows:
            return sharded(ShardBy::rows);
        case Way::packed:
            return sharded(ShardBy::packed_rows);
        case Way::flat:
            return sharded(ShardBy::flat);
        case Way::offload:
            return std::make_unique<ZeroOffload>(device, line, parameters,
                                                 ZeroOptions{.sizes = kSmall});
    }
    throw std::logic_error("no such way");
}

/// One rank's training, which advances step by step.
class Session {
  public:
    Session(Rank& rank, const Layout& layout)
        : device_(rank.device()),
          layout_(layout),
          mesh_(rank.world(), {{"pp", layout.pp},
                               {"between", layout.between},
                               {"dp", layout.dp},
                               {"tp", layout.tp}}),
          tp_(device_, mesh_["tp"]),
          kit_(tensor_parallel({}, tp_)),
          plan_(make_schedule(layout.interleaved ? "interleaved" : "1f1b",
                              {layout.pp, kMicroBatches, layout.interleaved ? 2 : 1})),
          stage_(make_gpt_stage({device_, layout.dtype, 1, ""}, sizes(), plan_.schedule(),
                                mesh_["pp"].rank(), cut_gpt(sizes(), plan_.schedule()),
                                kit_)),
          pipeline_(device_, mesh_["pp"], plan_, stage_.modules(),
                    gpt_boundary(sizes(), layout.dtype, kit_)) {
        for (const auto& chunk : stage_.chunks)
            for (const char* axis : {"between", "dp"})
                declare_replicas_of(mesh_[axis], *chunk);
        for (const auto& chunk : stage_.chunks)
            add(make_sync(device_, layout.way, mesh_["dp"], *chunk));
        pipeline_.sync_by(syncs_of_pipeline_);
        pipeline_.update_by(optimizers_of_pipeline_);
    }

    /// Returns this rank's terms of the batch's loss.
    double train(int step) {
        const int replicas = layout_.between * layout_.dp;
        const int replica =
            mesh_.coordinate("between") * layout_.dp + mesh_.coordinate("dp");
        const std::int64_t rows = kSequences / replicas / kMicroBatches;
        const HostTensor ids = ids_below({kSequences * (kTokens + 1), 1}, kVocabulary,
                                         fmt::format("{}", step));
        std::vector<MicroBatch> batches;
        for (int i = 0; i < kMicroBatches; ++i) {
            HostTensor input({kTokens, rows}, DType::i32), target = input;
            for (std::int64_t row = 0; row < rows; ++row)
                for (std::int64_t token = 0; token < kTokens; ++token) {
                    const std::int64_t sequence =
                        (replica * kMicroBatches + i) * rows + row;
                    const std::int64_t at = sequence * (kTokens + 1) + token;
                    input.set(token * rows + row, ids.at(at));
                    target.set(token * rows + row, ids.at(at + 1));
                }
            batches.push_back({device_.upload(input), device_.upload(target),
                               static_cast<double>(rows) / kSequences});
        }
        const Tensor loss = pipeline_.run(kit_.loss(sizes()), batches);
        return loss && tp_.rank() == 0 ? device_.peek(loss).at(0) : 0;
    }

    void wait_for_values() {
        for (const auto& sync : syncs_)
            sync->wait_for_values();
    }

    const TrainingState& state() const { return state_; }

  private:
    void add(std::unique_ptr<GradientSync> sync) {
        optimizers_.push_back(
            layout_.updates == Updates::adamw
                ? make_optimizer<AdamW>(
                      sync->shards(),
                      AdamWOptions{.learning_rate = 0.01, .epsilon = 1e-5})
                : make_optimizer<Sgd>(sync->shards(), SgdOptions{0.05, 0.9, 0}));
        state_.add(*sync, optimizers_.back().get());
        optimizers_of_pipeline_.push_back(optimizers_.back().get());
        syncs_of_pipeline_.push_back(sync.get());
        syncs_.push_back(std::move(sync));
    }

    Device& device_;
    Layout layout_;
    Mesh mesh_;
    TensorParallel tp_;
    GptKit kit_;
    PipelinePlan plan_;
    GptStage stage_;
    Pipeline pipeline_;
    std::vector<std::unique_ptr<GradientSync>> syncs_;
    std::vector<std::unique_ptr<Optimizer>> optimizers_;
    std::vector<GradientSync*> syncs_of_pipeline_;
    std::vector<Optimizer*> optimizers_of_pipeline_;
    TrainingState state_;
};

/// Trains up to step `last`, then saves. Begins with the checkpoint `from` if it is not
/// empty. Returns the loss of the last step.
double train(const Layout& layout, const fs::path& from, int last, const fs::path& to,
             sim::CheckLevel check = sim::CheckLevel::cheap) {
    double loss = 0;
    sim::ClusterOptions options;
    options.ranks = layout.ranks();
    options.workers = 1;  // because all ranks add to `loss`
    options.check = check;
    sim::make_cluster(options)->run([&](Rank& rank) {
        Session session(rank, layout);
        std::int64_t step = 0;
        if (!from.empty())
            step = load_checkpoint(rank.device(), rank.world(), from, session.state());
        for (; step < last; ++step) {
            const double own = session.train(static_cast<int>(step));
            if (step + 1 == last) loss += own;
        }
        session.wait_for_values();
        save_checkpoint(rank.device(), rank.world(), to, step, session.state());
    });
    return loss;
}

/// Returns all whole tensors of a checkpoint, each with its number of updates.
std::map<std::string, std::pair<HostTensor, std::int64_t>> all_of(const fs::path& place) {
    CheckpointReader reader(place);
    std::map<std::string, std::pair<HostTensor, std::int64_t>> all;
    for (const auto& [name, saved] : reader.index().tensors)
        all[name] = {reader.read(name, whole_part(saved.shape), saved.dtype),
                     saved.steps};
    return all;
}

void check_same_bits(const fs::path& a, const fs::path& b) {
    const auto left = all_of(a), right = all_of(b);
    REQUIRE(left.size() == right.size());
    for (const auto& [name, values] : left) {
        CAPTURE(name);
        CHECK(values == right.at(name));
    }
}

}  // namespace

TEST_CASE("A checkpoint moves from any layout to any other and back, bit for bit",
          "[parallel][checkpoint]") {
    const TemporaryFolder folder;
    const auto all = layouts();
    for (std::size_t i = 0; i < all.size(); ++i) {
        const fs::path saved = folder / fmt::format("{}", i);
        train(all[i], {}, 2, saved, sim::CheckLevel::full);
        const fs::path first = latest_checkpoint(saved).value();
        CHECK(first.filename() == "step-00000002");
        const double next = train(all[i], first, 3, folder / fmt::format("{} next", i));
        for (std::size_t j = 0; j < all.size(); ++j) {
            CAPTURE(all[i].name, all[j].name);
            const fs::path moved = folder / fmt::format("{} on {}", i, j);
            train(all[j], first, 2, moved);
            check_same_bits(first, *latest_checkpoint(moved));
            if ((i + j) % 3 != 0) continue;
            const double there = train(all[j], *latest_checkpoint(moved), 3,
                                       folder / fmt::format("{} on {} next", i, j));
            CHECK(std::abs(there - next) <= 1e-12);
        }
    }
}

TEST_CASE("A training that continues from a checkpoint has the same bits",
          "[parallel][checkpoint]") {
    const TemporaryFolder folder;
    int number = 0;
    for (Layout layout : layouts())
        for (const Updates updates : {Updates::sgd, Updates::adamw})
            for (const DType dtype : {DType::f64, DType::bf16}) {
                layout.updates = updates;
                layout.dtype = dtype;
                CAPTURE(layout.name, static_cast<int>(updates), name_of(dtype));
                const std::string run = fmt::format("{}", ++number);
                train(layout, {}, 4, folder / ("straight" + run));
                train(layout, {}, 2, folder / ("half" + run));
                const fs::path half = *latest_checkpoint(folder / ("half" + run));
                train(layout, half, 4, folder / ("again" + run));
                check_same_bits(*latest_checkpoint(folder / ("straight" + run)),
                                *latest_checkpoint(folder / ("again" + run)));
            }
}

namespace {

struct BatchNormed {
    explicit BatchNormed(Device& device) {
        const ParameterInit init{device, DType::f64, 1, ""};
        model.add<Linear>(init.child("0"), 4, 6);
        model.add<BatchNorm>(init.child("1"), 6);
        model.add<Linear>(init.child("2"), 6, 2);
    }
    /// Runs a forward, which updates the running statistics.
    void see(Device& device, const std::string& name) {
        Saved saved;
        model.forward(device.upload(normal_values({8, 4}, name)), saved);
    }
    Sequential model;
};

}  // namespace

TEST_CASE("Running statistics are saved and loaded with their model",
          "[parallel][checkpoint]") {
    const TemporaryFolder folder;
    std::vector<HostTensor> results;
    sim::make_cluster(1)->run([&](Rank& rank) {
        Device& device = rank.device();
        const Tensor x = device.upload(normal_values({3, 4}, "x"));
        BatchNormed trained(device), other(device);
        trained.see(device, "a");
        trained.see(device, "b");
        results.push_back(device.peek(trained.model.infer(x)));
        AllReduceSync sync(trained.model.parameters());
        TrainingState state(sync);
        state.buffers = trained.model.buffers();
        CHECK(state.buffers.size() == 2);
        save_checkpoint(device, rank.world(), folder.path(), 2, state);

        results.push_back(device.peek(other.model.infer(x)));
        AllReduceSync other_sync(other.model.parameters());
        TrainingState there(other_sync);
        there.buffers = other.model.buffers();
        load_checkpoint(device, rank.world(), *latest_checkpoint(folder.path()), there);
        results.push_back(device.peek(other.model.infer(x)));
    });
    CHECK(!(results[1] == results[0]));
    CHECK(results[2] == results[0]);
    CHECK(read_checkpoint(*latest_checkpoint(folder.path())).contains("1.running_var"));
}

TEST_CASE("A file of whole tensors is loaded by any layout", "[parallel][checkpoint]") {
    const TemporaryFolder folder;
    Layout one{"one device"};
    train(one, {}, 2, folder / "one");
    const NamedTensors whole = read_checkpoint(*latest_checkpoint(folder / "one"));
    CHECK(whole.size() == 5 + 2 * 12);  // tables, last norm, head; two blocks
    write_safetensors(folder / "whole.safetensors", whole);
    for (const Layout& layout : layouts()) {
        CAPTURE(layout.name);
        sim::ClusterOptions options;
        options.ranks = layout.ranks();
        const fs::path again = folder / layout.name;
        sim::make_cluster(options)->run([&](Rank& rank) {
            Session session(rank, layout);
            TrainingState values;
            for (const auto& chunk : session.state().chunks)
                values.add(*chunk.sync);
            CHECK(load_checkpoint(rank.device(), rank.world(),
                                  folder / "whole.safetensors", values) == 0);
            save_checkpoint(rank.device(), rank.world(), again, 7, values);
            session.wait_for_values();
        });
        CHECK(read_checkpoint(*latest_checkpoint(again)) == whole);
    }
}

namespace {

using Make =
    std::function<std::unique_ptr<GradientSync>(Device&, Communicator&, Sequential&)>;

/// Trains for some steps, loads the file, and trains for two more. Keeps the shards and
/// the optimizer's state. There are `between` replicas of each shard.
void train_and_load(Rank& rank, const fs::path& file, int between, const Make& make,
                    int steps_before) {
    Device& device = rank.device();
    const Mesh mesh(rank.world(), {{"between", between}, {"dp", 4 / between}});
    Sequential model;
    model.add<Linear>(ParameterInit{device, DType::bf16, 1, ""}, 3, 5);
    for (const char* axis : {"between", "dp"})
        declare_replicas_of(mesh[axis], model);
    const auto sync = make(device, mesh["dp"], model);
    const auto optimizer = make_optimizer<Sgd>(sync->shards(), SgdOptions{0.001, 0, 0});
    const auto step = [&](const std::string& name) {
        const Shape rows{2, 3};
        const MicroBatch batch{
            device.upload(normal_values(rows, fmt::format("{} {}", name, rank.index()))
                              .as(DType::bf16)),
            device.zeros({2, 5}, DType::bf16), 0.25};
        train_step(device, model, mean_squared_error, {&batch, 1}, *sync, *optimizer);
    };
    for (int i = 0; i < steps_before; ++i)
        step(fmt::format("before {}", i));
    load_checkpoint(device, rank.world(), file, *sync);
    step("first");
    step("second");
    sync->wait_for_values();
    for (const Parameter* shard : sync->shards())
        rank.keep(shard->name(), shard->value);
    for (const Optimizer::State& state : optimizer->state())
        rank.keep(state.name, state.tensor);
}

}  // namespace

TEST_CASE("Loaded values replace masters and values in flight",
          "[parallel][checkpoint]") {
    const TemporaryFolder folder;
    const fs::path file = folder / "whole.safetensors";
    write_safetensors(file, {{"weight", normal_values({5, 3}, "w").as(DType::bf16)},
                             {"bias", normal_values({5}, "b").as(DType::bf16)}});
    const Make ways[] = {
        [](Device& device, Communicator& line, Sequential& model) {
            return std::make_unique<Zero1>(device, line, model.parameters(),
                                           ZeroOptions{.hide_gather = true});
        },
        [](Device& device, Communicator& line, Sequential& model) {
            return std::make_unique<Zero2>(device, line, model.parameters());
        },
        [](Device& device, Communicator& line, Sequential& model) {
            return std::make_unique<ZeroOffload>(device, line, model.parameters(),
                                                 ZeroOptions{}, /*delayed=*/true);
        },
        [](Device& device, Communicator& line, Sequential& model) {
            return std::make_unique<FullySharded>(device, line, model);
        },
        [](Device& /*device*/, Communicator& /*line*/, Sequential& model) {
            return std::make_unique<AllReduceSync>(model.parameters());
        }};
    for (std::size_t way = 0; way < std::size(ways); ++way) {
        CAPTURE(way);
        const auto train = [&](int steps_before) {
            sim::ClusterOptions options;
            options.ranks = 4;
            options.check = sim::CheckLevel::full;
            return sim::make_cluster(options)->run([&](Rank& rank) {
                const int between = way == 2 ? 1 : 2;  // a host cannot sum over replicas
                train_and_load(rank, file, between, ways[way], steps_before);
            });
        };
        const RunReport fresh = train(0), after = train(2);
        for (std::size_t rank = 0; rank < fresh.ranks.size(); ++rank)
            CHECK(fresh.ranks[rank].kept == after.ranks[rank].kept);
    }
}

/// Run by tests/lessons/pytorch_test.py, which sets LOCKSTEP_WHOLE.
TEST_CASE("Writes a file of whole tensors, and its model's logits", "[.whole]") {
    const fs::path folder = std::getenv("LOCKSTEP_WHOLE");
    train({"tp 2 x ZeRO-1 on 3", 1, 1, 3, 2, Way::zero_1}, {}, 2, folder);
    const fs::path place = *latest_checkpoint(folder);
    write_safetensors(folder / "whole.safetensors", read_checkpoint(place));
    sim::make_cluster(1)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto gpt = make_gpt({device, DType::f64, 3, ""}, sizes());
        AllReduceSync sync(gpt->parameters());
        load_checkpoint(device, rank.world(), place, sync);
        const HostTensor ids = ids_below({kTokens, 4}, kVocabulary, "prompt");
        write_safetensors(
            folder / "expected.safetensors",
            {{"ids", ids}, {"logits", device.peek(gpt->infer(device.upload(ids)))}});
    });
}

}  // namespace lockstep::test
