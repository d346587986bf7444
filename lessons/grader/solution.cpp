#include "lessons/grader/solution.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/course/not_written.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep::lessons {

const TaskResult& SolutionWork::run(const TaskRun& run) {
    return made_.get(run, [&] {
        return make_run(run, check_, [&](Rank& rank) {
            return run_rank(rank, run.ranks[static_cast<std::size_t>(rank.index())]);
        });
    });
}

RankResult SolutionWork::run_rank(Rank& rank, const RankTask& given) const {
    const auto ended = [&](TaskEnded::Cause cause, const std::string& text) {
        return TaskEnded(cause, rank.index(), text);
    };
    try {
        const TaskInputs in{upload_given(rank.device(), given), given.numbers};
        TaskOutputs out;
        solution_.tasks.at(given.task)(rank, in, out);
        return {read_left(rank.device(), out.tensors), std::move(out.values),
                std::move(out.texts)};
    } catch (const NotWritten& missing) {
        throw ended(TaskEnded::Cause::not_written, missing.what());
    } catch (const UsageError&) {
        throw;
    } catch (const FaultError&) {
        throw;
    } catch (const std::exception& error) {
        throw ended(TaskEnded::Cause::threw, fmt::format("rank {} threw an exception: {}",
                                                         rank.index(), error.what()));
    }
}

std::string SolutionWork::file(const std::string& name) const {
    return files_.at(name);
}

Answers::Answers(std::vector<Solution> solutions)
    : solutions_(std::move(solutions)),
      reference_(solutions_.at(0), sim::CheckLevel::cheap) {}

const TaskResult& Answers::right(const TaskRun& run) {
    const TaskResult& result = reference_.run(run);
    if (result.trouble)
        throw GradingError(fmt::format("the reference does not come to its end, {}: {}",
                                       run.name, result.trouble->text));
    return result;
}

std::string Answers::mistake(const TaskRun& run, const std::string& criterion,
                             const std::function<bool(const TaskResult&)>& fits) const {
    std::vector<const Solution*> likely;
    for (const Solution& mistaken : solutions_)
        if (!mistaken.says.empty()) likely.push_back(&mistaken);
    std::stable_partition(likely.begin(), likely.end(), [&](const Solution* mistaken) {
        return !mistaken->loses.empty() && mistaken->loses.front() == criterion;
    });
    for (const Solution* mistaken : likely) {
        SolutionWork work(*mistaken, sim::CheckLevel::cheap);
        const TaskResult& result = work.run(run);
        if (!result.trouble && fits(result)) return mistaken->says;
    }
    return "";
}

}  // namespace lockstep::lessons
