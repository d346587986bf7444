// The engine asks here, and those who know answer.

#include "sim/check/activity.hpp"
#include "sim/check/check.hpp"
#include "sim/check/expectations.hpp"
#include "sim/check/layouts.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

namespace {

class RunChecker final : public Checker {
  public:
    explicit RunChecker(Engine& engine) : engine_(engine) {}

    void expected(const Team& team, int member, const Tensor& tensor,
                  const std::string& name, SourceLine at, Picoseconds now) override {
        expectations_.note(team, member, tensor, name, at, now);
    }
    std::optional<Diagnosis> explain_open_works(const Team& team, int member) override {
        return sim::explain_open_works(engine_, team, member);
    }

    void quiet() override { expectations_.compare(); }
    void require_same_groups(const Team& team, const Meeting& meeting) override {
        sim::require_same_groups(engine_, team, meeting);
    }
    Diagnosis explain_difference(const Posted& posted) override {
        Diagnosis diagnosis = sim::explain_difference(engine_, posted);
        diagnosis.waits = waits_of(engine_);
        return diagnosis;
    }
    std::optional<Diagnosis> explain_stop() override {
        std::optional<Diagnosis> diagnosis = sim::explain_stop(engine_);
        if (!diagnosis) diagnosis = explain_unwaited(engine_);
        if (diagnosis) diagnosis->waits = waits_of(engine_);
        return diagnosis;
    }
    void run_ended() override {
        if (std::optional<Diagnosis> kept = explain_kept(engine_))
            throw FaultError(std::move(*kept));
        expectations_.run_ended();
    }
    void complete(Diagnosis& diagnosis) override { sim::complete(engine_, diagnosis); }

  private:
    Engine& engine_;
    Expectations expectations_;
};

void add_watchers(Engine& engine, Watchers& watchers) {
    const bool several = engine.options().ranks > 1;
    const bool numbers = engine.options().numbers;
    auto layouts = std::make_unique<Layouts>(engine);
    watchers.add(watch_buffers(engine));
    watchers.add(watch_launch_order(engine));
    watchers.add(watch_versions(engine));
    watchers.add(watch_row_weights(engine));
    watchers.add(watch_gradient_use(engine));
    if (several && numbers) watchers.add(watch_replicas(engine, *layouts));
    if (several && numbers) watchers.add(watch_own_gradients(engine, *layouts));
    if (several) watchers.add(watch_random_streams(engine, *layouts));
    watchers.add(std::move(layouts));
    watchers.add(watch_shards(engine));
    if (numbers && engine.options().reference) watchers.add(watch_reference(engine));
}

}  // namespace

std::unique_ptr<Checker> make_checker(Engine& engine, Watchers& watchers) {
    if (engine.options().check == CheckLevel::full) add_watchers(engine, watchers);
    return std::make_unique<RunChecker>(engine);
}

}  // namespace lockstep::sim
