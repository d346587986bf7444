// Runs schedules of every generator, and schedules whose weights change during the run.

#include <algorithm>

#include "src/comm/expect.hpp"
#include "src/core/require.hpp"
#include "src/nn/linear.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/holdings.hpp"
#include "src/pipeline/pipeline.hpp"
#include "src/pipeline/validate.hpp"
#include "tests/catch.hpp"
#include "tests/pipeline/chain.hpp"
#include "tests/pipeline/generator_shapes.hpp"
#include "tests/pipeline/random_schedule.hpp"
#include "tests/pipeline/written_schedule.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// The weights that backward reads: forward's version, the newest version (with or
/// without forward's prediction of it), or an estimate of forward's version.
enum class Backward { same, newest, predicted, corrected };

/// A pipeline that does not stop, by its paper's rule.
struct Endless {
    const char* name;
    int per_update = 1;
    /// Returns the version of the weights that micro-batch i reads on stage s of p.
    int (*version)(const Endless& rule, int p, int s, int i);
    Backward backward = Backward::same;
    double decay = 0;  ///< of the average step
};

using Weights = std::vector<HostTensor>;

/// Returns an estimate of the weights `steps` steps after version `from`, which uses the
/// average of the steps before `from`.
Weights estimated(const std::vector<Weights>& versions, int from, int steps,
                  double decay) {
    Weights made = versions.at(static_cast<std::size_t>(from));
    for (std::size_t tensor = 0; tensor < made.size(); ++tensor)
        for (std::int64_t i = 0; i < made[tensor].elements(); ++i) {
            double average = 0;
            for (std::size_t v = 1; v <= static_cast<std::size_t>(from); ++v)
                average = decay * average + (1 - decay) * (versions[v][tensor].at(i) -
                                                           versions[v - 1][tensor].at(i));
            made[tensor].set(i, made[tensor].at(i) + steps * average);
        }
    return made;
}

/// w(t + 1) = w(t) - f'(w_1(t - p + 1), …, w_p(t)): Harlap et al. 2018, 1806.03377,
/// section 3.3. The paper's stages count from 1.
const Endless kPipeDream{"pipedream", 1, [](const Endless&, int p, int s, int i) {
                             return std::max(0, i - p + s + 1);
                         }};
/// w(t + 1) = w(t) - f'(w_1(t - p + 1), …, w_p(t - p + 1)), from the same section.
const Endless kVertical{"pipedream-vertical", 1, [](const Endless&, int p, int, int i) {
                            return std::max(0, i - p + 1);
                        }};
/// W(t + 1) = W(t) - f'(W(t - 1)): Narayanan et al. 2021, 2006.09503, section 3.1.
Endless two_buffers(int per_update) {
    return {"pipedream-2bw", per_update, [](const Endless& rule, int, int, int i) {
                return std::max(0, i / rule.per_update - 1);
            }};
}

/// A device that trains all parts by a paper's rule, and keeps all versions of their
/// weights.
class DeviceAlone {
  public:
    DeviceAlone(Device& device, const Endless& rule, int stages, double learning_rate)
        : device_(device), rule_(rule), stages_(stages), learning_rate_(learning_rate) {
        for (int stage = 0; stage < stages; ++stage) {
            parts_.push_back({stage, make_chain_part(device, stage), {}, {}});
            keep_version(parts_.back());
        }
    }

    /// Trains with micro-batch i.
    void train(int i, const MicroBatch& batch) {
        Tensor y = batch.input;
        for (Part& part : parts_)
            y = forward(part, i, y);
        Tensor dy = mean_squared_error(device_, y, batch.target, batch.weight).gradient;
        for (std::size_t stage = parts_.size(); stage-- > 0;) {
            dy = backward(parts_[stage], i, dy);
            if ((i + 1) % rule_.per_update == 0) update(parts_[stage]);
        }
    }

    void keep_values(Rank& rank) const {
        for (const Part& part : parts_)
            for (const Parameter* parameter : part.module->parameters())
                rank.keep(parameter->name(), parameter->value);
    }

  private:
    struct Part {
        int stage = 0;
        std::unique_ptr<Module> module;
        std::vector<Weights> versions;
        Saved saved;  ///< of the current micro-batch
    };

    Tensor forward(Part& part, int i, const Tensor& x) {
        const int version = rule_.version(rule_, stages_, part.stage, i);
        const bool predicts = rule_.backward == Backward::predicted;
        load(part,
             estimated(part.versions, version, predicts ? i - version : 0, rule_.decay));
        if (i % rule_.per_update == 0) zero_gradients(*part.module);
        part.saved = Saved();
        return part.module->forward(x, part.saved);
    }

    Tensor backward(Part& part, int i, const Tensor& dy) {
        const int version = rule_.version(rule_, stages_, part.stage, i);
        const int newest = static_cast<int>(part.versions.size()) - 1;
        if (rule_.backward == Backward::corrected)
            load(part, estimated(part.versions, newest, version - newest, rule_.decay));
        else if (rule_.backward != Backward::same)
            load(part, part.versions.back());
        return part.module->backward(dy, part.saved);
    }

    /// Makes the next version of the weights from the newest version.
    void update(Part& part) {
        load(part, part.versions.back());
        Sgd(part.module->parameters(), SgdOptions{learning_rate_, 0, 0}).step();
        keep_version(part);
    }

    void load(Part& part, const Weights& weights) {
        std::size_t tensor = 0;
        for (const Parameter* parameter : part.module->parameters())
            device_.upload_into(parameter->value, weights[tensor++]);
    }

    void keep_version(Part& part) {
        Weights& weights = part.versions.emplace_back();
        for (const Parameter* parameter : part.module->parameters())
            weights.push_back(device_.download(parameter->value));
    }

    Device& device_;
    const Endless& rule_;
    int stages_;
    double learning_rate_;
    std::vector<Part> parts_;
};

/// Returns the weights that a paper's rule gives on one device.
std::map<std::string, HostTensor> endless_alone(const Endless& rule, int stages,
                                                int micro_batches, double learning_rate) {
    const RunReport report = sim::make_cluster(1)->run([&](Rank& rank) {
        const auto batches = chain_batches(rank.device(), micro_batches);
        DeviceAlone alone(rank.device(), rule, stages, learning_rate);
        for (int i = 0; i < micro_batches; ++i)
            alone.train(i, batches[static_cast<std::size_t>(i)]);
        alone.keep_values(rank);
    });
    return report.ranks[0].kept;
}

/// Selects all shapes of interleaved, and some shapes of the other schedules.
bool is_tried(const std::string& name, const PipelineShape& shape) {
    if (goes_both_ways(name) || !flushes(name) || !takes(name, shape)) return false;
    const auto is_one_of = [](int count, const std::vector<int>& chosen) {
        return std::ranges::find(chosen, count) != chosen.end();
    };
    const int p = shape.stages;
    const int m = shape.micro_batches;
    if (has_two_chunks(name) || name == "hanayo")
        return shape.chunks != 2 && is_one_of(p, {1, 2, 3, 4, 7, 12}) &&
               is_one_of(m, {1, p, p + 1, 2 * p, 3 * p});
    if (name == "looped-bfs" && shape.chunks > 2) return false;
    if (m % p == 0) return true;
    return shape.chunks == 1 && name != "interleaved" && name != "looped-bfs" &&
           is_one_of(m, {1, 2, 3, 4, 5, 7, 8, 11, 15, 16, 17, 31, 32, 48, 64});
}

}  // namespace

TEST_CASE("every generator's schedule gives one device's bits", "[pipeline][sim]") {
    for (const std::string& name : schedule_names())
        for (int stages = 1; stages <= 16; ++stages)
            for (int micro_batches = 1; micro_batches <= 64; ++micro_batches)
                for (int chunks = 1; chunks <= 4; ++chunks) {
                    const PipelineShape shape{stages, micro_batches, chunks};
                    if (!is_tried(name, shape)) continue;
                    CAPTURE(name, stages, micro_batches, chunks);
                    const PipelinePlan plan(make_schedule(name, shape));
                    REQUIRE(
                        run_chain(plan).results ==
                        run_chain(plan.schedule().part_count(), micro_batches).results);
                }
}

TEST_CASE("random schedules give one device's gradients", "[pipeline][sim]") {
    Random random(5);
    int run = 0;
    while (run < 100) {
        const Schedule schedule = random_schedule(random);
        const int parts = schedule.part_count();
        // Leaves out schedules with a part on two stages: such a part has two gradients.
        if (parts != schedule.stages * schedule.chunks) continue;
        ++run;
        const Outcome pipelined = run_chain(PipelinePlan(schedule));
        const Outcome alone = run_chain(parts, schedule.micro_batches);
        CHECK(difference(pipelined, alone).absolute < 1e-14);
    }
}

TEST_CASE("a schedule may be run again: gradients start from zero each time",
          "[pipeline][sim]") {
    const PipelinePlan plan(make_schedule("zb-h1", {3, 4, 1}));
    ChainOptions twice;
    twice.runs = 2;
    const Outcome result = run_chain(plan, twice);
    CHECK(result.results.at("loss/0") == result.results.at("loss/1"));
    CHECK(named_under(result.results, "grad/") ==
          named_under(run_chain(3, 4).results, "grad/"));
}

TEST_CASE("pipelines from both ends make one device's gradients and weights",
          "[pipeline][sim]") {
    for (const char* name : {"chimera", "dualpipe"})
        for (const int stages : {2, 4, 6})
            for (const int micro_batches : {2 * stages, 3 * stages, 3 * stages + 2}) {
                CAPTURE(name, stages, micro_batches);
                ChainOptions options;
                options.learning_rate = 0.5;
                options.uneven = true;
                options.check = sim::CheckLevel::full;
                const PipelinePlan plan(make_schedule(name, {stages, micro_batches}));
                const Outcome result = run_chain(plan, options);
                ChainOptions one = options;
                const Outcome alone = run_chain(
                    PipelinePlan(make_schedule("gpipe", {stages, micro_batches})), one);
                // Losses come from both ends. Each end has the losses of the
                // micro-batches that began at the other end.
                CHECK(difference(result, alone).absolute < 1e-14);
            }
}

TEST_CASE("offloaded activations give the same results", "[pipeline][sim]") {
    for (const std::string& name : names_for({4, 12})) {
        CAPTURE(name);
        const PipelinePlan plan(make_schedule(name, {4, 12}));
        ChainOptions options;
        options.learning_rate = 0.5;
        // Without a flush, weights may be mixed or estimated, which a full check reports.
        options.check = flushes(name) ? sim::CheckLevel::full : sim::CheckLevel::cheap;
        const Outcome on_device = run_chain(plan, options);
        options.offload = true;
        const Outcome on_host = run_chain(plan, options);
        CHECK(on_host.results == on_device.results);
        std::int64_t sent = 0;
        for (const RankReport& rank : on_host.report.ranks) {
            // If two chunks save a tensor, it is copied to the host once, but may come
            // back for each chunk.
            CHECK(rank.host.bytes_to_host <= rank.host.bytes_to_device);
            CHECK(rank.host.memory.current == decltype(MemoryReport::current){});
            sent += rank.host.bytes_to_host;
        }
        CHECK((sent > 0) == (name != "naive"));
    }
}

TEST_CASE(
    "with a host the device's memory does not depend on the micro-batches in flight",
    "[pipeline][sim]") {
    const auto held = [](int stages, bool offload) {
        ChainOptions options;
        options.offload = offload;
        const Outcome result =
            run_chain(PipelinePlan(make_schedule("1f1b", {stages, 24})), options);
        return result.report.ranks[1].memory.peak_of(MemoryCategory::activations);
    };
    CHECK(held(12, false) - held(8, false) == 4 * (held(8, false) - held(7, false)));
    CHECK(held(8, false) > held(7, false));
    CHECK(held(12, true) == held(6, true));
    CHECK(held(6, true) < held(6, false));
}

TEST_CASE("micro-batches of unequal size are weighted by rows", "[pipeline][sim]") {
    for (const std::string& name : schedule_names()) {
        if (!flushes(name) || goes_both_ways(name)) continue;
        ChainOptions options;
        options.uneven = true;
        CAPTURE(name);
        const PipelinePlan plan(make_schedule(name, {3, 6, 1}));
        CHECK(run_chain(plan, options).results ==
              run_chain(plan.schedule().part_count(), 6, /*uneven=*/true).results);
    }
}

TEST_CASE("20 updates without a flush equal the papers' rules on one device",
          "[pipeline][sim]") {
    constexpr int kUpdates = 20;
    for (const int stages : {1, 2, 3, 4, 8})
        for (const Endless& rule :
             {kPipeDream, kVertical, two_buffers(std::max(stages - 1, 1)),
              two_buffers(stages + 2)}) {
            CAPTURE(rule.name, rule.per_update, stages);
            const int micro_batches = kUpdates * rule.per_update;
            ChainOptions options;
            options.learning_rate = 0.5 * micro_batches / rule.per_update;
            const Schedule schedule =
                make_schedule(rule.name, {stages, micro_batches, 1, rule.per_update});
            const Outcome result = run_chain(PipelinePlan(schedule), options);
            CHECK(named_under(result.results, "value/") ==
                  endless_alone(rule, stages, micro_batches, options.learning_rate));
        }
}

TEST_CASE("backward with other weights than forward's, and estimates, follow their rules",
          "[pipeline][sim]") {
    constexpr int kUpdates = 20;
    const auto newest = kPipeDream.version;
    for (const int stages : {1, 2, 4})
        for (const Endless& rule :
             {Endless{"unstashed", 1, newest, Backward::newest, 0},
              Endless{"spectrain", 1, newest, Backward::predicted, 0},
              Endless{"spectrain", 1, newest, Backward::predicted, 0.5},
              Endless{"pipemare", 1, newest, Backward::corrected, 0.7}}) {
            CAPTURE(rule.name, rule.decay, stages);
            ChainOptions options;
            options.learning_rate = 2;
            options.decay = rule.decay;
            options.check = sim::CheckLevel::cheap;
            const Schedule schedule = make_schedule(rule.name, {stages, kUpdates, 1});
            const Outcome result = run_chain(PipelinePlan(schedule), options);
            const auto expected =
                endless_alone(rule, stages, kUpdates, options.learning_rate);
            const auto stashed =
                endless_alone(kPipeDream, stages, kUpdates, options.learning_rate);
            const auto values = named_under(result.results, "value/");
            CHECK(difference(values, expected).absolute < 1e-12);
            // Gradients differ only if some stage has stages both before and after it.
            if (stages > 2) CHECK(difference(values, stashed).absolute > 1e-6);
        }
}

TEST_CASE("the full check reports a schedule that does not stash weights",
          "[pipeline][sim]") {
    ChainOptions options;
    options.learning_rate = 0.5;
    options.check = sim::CheckLevel::full;
    const auto said = [&](const char* name) {
        return message_of<std::exception>([&] {
            run_chain(PipelinePlan(make_schedule(name, {4, 12, 1})), options);
        });
    };
    for (const char* name : {"pipedream", "pipedream-vertical", "pipedream-2bw"})
        CHECK(said(name) == "(nothing was thrown)");
    for (const char* name : {"unstashed", "spectrain", "pipemare"})
        CHECK(said(name).find("uses two versions of ") != std::string::npos);
}

TEST_CASE("a run reports each update and each micro-batch's loss", "[pipeline][sim]") {
    const Schedule schedule = make_schedule("pipedream-2bw", {3, 12, 1, 3});
    const PipelinePlan plan(schedule);
    sim::make_cluster(3)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto part = make_chain_part(device, rank.index());
        Sgd optimizer(part->parameters(), SgdOptions{0.1, 0, 0});
        const auto batches = chain_batches(device, schedule.micro_batches);
        Pipeline pipeline(device, rank.world(), plan, {part.get()}, chain_boundary());
        pipeline.update_by({&optimizer});
        pipeline.keep_losses();
        std::vector<int> versions;
        pipeline.after_update([&](int chunk, int version) {
            CHECK(chunk == 0);
            versions.push_back(version);
        });
        const Tensor total = pipeline.run(mean_squared_error, batches);
        CHECK(versions == std::vector<int>{1, 2, 3, 4});
        CHECK(pipeline.losses().size() == 12);
        if (rank.index() != 2) return;
        double sum = 0;
        for (const Tensor& loss : pipeline.losses())
            sum += device.download(loss).at(0);
        CHECK(std::abs(sum - device.download(total).at(0)) < 1e-14);
    });
}

TEST_CASE("replicas of a pipeline with updates in between stay equal",
          "[pipeline][sim]") {
    Schedule schedule = make_schedule("pipedream", {3, 4, 1});
    for (std::vector<Instruction>& list : schedule.work)
        std::erase_if(list, [](const Instruction& each) {
            return each.kind == InstructionKind::reduce_gradients;
        });
    ChainOptions options;
    options.learning_rate = 0.5;
    options.replicas = 2;
    options.check = sim::CheckLevel::full;
    // Without reductions the replicas would drift apart.
    CHECK(message_of<std::exception>([&] {
              run_chain(PipelinePlan(schedule), options);
          }).find("schedule 'pipedream' does not reduce them (R) before stage ") !=
          std::string::npos);
    for (std::vector<Instruction>& list : schedule.work)
        for (std::size_t i = 0; i < list.size(); ++i)
            if (list[i].kind == InstructionKind::optimizer_step)
                list.insert(list.begin() + static_cast<std::ptrdiff_t>(i++),
                            Instruction{InstructionKind::reduce_gradients});
    const Outcome result = run_chain(PipelinePlan(schedule), options);
    for (int stage = 0; stage < 3; ++stage)
        for (const auto& [name, tensor] :
             result.report.ranks[2 * static_cast<std::size_t>(stage)].kept)
            CHECK(result.report.ranks[static_cast<std::size_t>(2 * stage + 1)].kept.at(
                      name) == tensor);
}

TEST_CASE("groups, and queues per direction, change no bit of training",
          "[pipeline][sim]") {
    Random random(3);
    int runs = 0;
    for (int draw = 0; draw < 60; ++draw) {
        const Schedule work =
            random_schedule(random, {false, true, draw % 2 == 0, draw % 2 == 1});
        // The bits are the same only if gradients are added in the order of
        // micro-batches.
        if (work.part_count() < work.stages * work.chunks || find_problem(work)) continue;
        CAPTURE(lines_of(work), work.parts);
        Schedule plain = work;
        plain.queues = MessageQueues::one;
        for (auto& list : plain.work) {
            for (Instruction& each : list)
                each.together = false;
            std::erase_if(list,
                          [](const Instruction& each) { return is_message(each.kind); });
        }
        const Outcome result = run_chain(PipelinePlan(work));
        CHECK(named_under(result.results, "grad/") ==
              named_under(run_chain(PipelinePlan(plain)).results, "grad/"));
        ++runs;
    }
    CHECK(runs > 15);
}

TEST_CASE("two pipelines in opposite directions sum the gradients of their copies",
          "[pipeline][sim]") {
    Schedule schedule = written_schedule({2, 2, 2}, {"F0 F1.1 B1.1 B0 R.0 R.1 U.0 U.1",
                                                     "F1.1 F0 B0 B1.1 R.1 R.0 U.1 U.0"});
    schedule.parts = {{0, 1}, {1, 0}};
    const Outcome result = run_chain(PipelinePlan(schedule));
    const Outcome alone = run_chain(2, 2);
    for (const auto& [name, gradient] : named_under(alone.results, "grad/")) {
        CAPTURE(name);
        for (const RankReport& rank : result.report.ranks)
            for (std::int64_t i = 0; i < gradient.elements(); ++i)
                CHECK(std::abs(rank.kept.at("grad/" + name).at(i) - gradient.at(i)) <
                      1e-14);
    }
    ChainOptions loose;
    loose.tie = false;
    CHECK(message_of<std::exception>([&] {
              run_chain(PipelinePlan(schedule), loose);
          }).find("has part 0 on several stages, so 0.weight on stage 0 must be tied") !=
          std::string::npos);
}

TEST_CASE("two tensors cross each boundary for each micro-batch, and nothing else",
          "[pipeline][sim]") {
    constexpr std::int64_t kTensor = kChainRows * kChainWidth * 8;
    const int m = 6;
    const Outcome result = run_chain(PipelinePlan(make_schedule("1f1b", {4, m, 1})));
    for (int stage = 0; stage < 4; ++stage) {
        const std::int64_t boundaries = stage == 0 || stage == 3 ? 1 : 2;
        const RankReport& rank = result.report.ranks[static_cast<std::size_t>(stage)];
        CHECK(rank.messages_sent() == m * boundaries);
        CHECK(rank.bytes_sent() == m * boundaries * kTensor);
    }
}

TEST_CASE("stages keep what the schedule says", "[pipeline][sim]") {
    // A stage keeps equally many bytes for each micro-batch. So these bytes are the
    // difference of the peaks for one and for two micro-batches.
    const auto peaks = [](const Schedule& schedule) {
        const Outcome result = run_chain(PipelinePlan(schedule));
        std::vector<std::int64_t> bytes;
        for (const RankReport& rank : result.report.ranks)
            bytes.push_back(rank.memory.category_peak[static_cast<std::size_t>(
                MemoryCategory::activations)]);
        return bytes;
    };
    constexpr std::int64_t kTensor = kChainRows * kChainWidth * 8;
    for (const int stages : {1, 2, 4, 7}) {
        const auto one = peaks(gpipe_schedule({stages, 1, 1}));
        const auto two = peaks(gpipe_schedule({stages, 2, 1}));
        for (const int m : {3, 8}) {
            const auto all = peaks(gpipe_schedule({stages, m, 1}));
            const Schedule schedule = one_forward_one_backward_schedule({stages, m, 1});
            const auto turns = peaks(schedule);
            for (int stage = 0; stage < stages; ++stage) {
                const auto i = static_cast<std::size_t>(stage);
                CAPTURE(stages, m, stage);
                const std::int64_t each = two[i] - one[i];
                REQUIRE(each > 0);
                CHECK(all[i] == one[i] + (m - 1) * each);
                // On all stages but 0, the next micro-batch's input has already arrived.
                const int held = std::min(stages - stage, m);
                const std::int64_t next = stage > 0 && m > held ? kTensor : 0;
                CHECK(turns[i] == one[i] + (held - 1) * each + next);
            }
        }
    }
}
