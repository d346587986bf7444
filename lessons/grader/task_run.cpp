#include "lessons/grader/task_run.hpp"

#include <algorithm>
#include <utility>

#include "src/core/require.hpp"
#include "src/device/ledger.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::int64_t kDeviceMemory = std::int64_t{32} << 20;

/// Call this in a catch block. Puts a failure of the student's program into the result;
/// rethrows any problem of the grader itself.
void take_exception(TaskResult& result) {
    try {
        throw;
    } catch (const TaskEnded& ended) {
        const bool missing = ended.cause() == TaskEnded::Cause::not_written;
        result.trouble = {missing ? Mark::not_written : Mark::failed, ended.what(),
                          ended.cause() == TaskEnded::Cause::late};
    } catch (const FaultError& fault) {
        result.trouble = {Mark::failed, fault.diagnosis().text(kDiagnosisColumns), false};
        if (fault.report()) result.report = *fault.report();
        const auto* full = dynamic_cast<const OutOfMemoryError*>(&fault);
        if (full != nullptr) result.trouble->held = full->held();
    } catch (const UsageError& error) {
        result.trouble = {Mark::failed, error.what(), false};
    }
}

}  // namespace

const TaskResult& MadeRuns::get(const TaskRun& run,
                                const std::function<TaskResult()>& make) {
    const auto [begin, end] = made_.equal_range(run.name);
    const auto made = std::find_if(begin, end, [&](const auto& each) {
        return each.second.inputs == run.ranks && each.second.numbers == run.numbers;
    });
    if (made != end) return made->second.result;
    return made_.emplace(run.name, Made{run.ranks, run.numbers, make()})->second.result;
}

ClusterSpec examination_cluster() {
    ClusterSpec spec = load_cluster("classroom");
    spec.memory_bytes = kDeviceMemory;
    spec.host_copy = {};
    return spec;
}

std::map<std::string, Tensor> upload_given(Device& device, const RankTask& task) {
    // This upload belongs to no line of the program.
    constexpr SourceLine kAtItsStart{"the start, where a task is given its tensors", 0};
    std::map<std::string, Tensor> tensors;
    for (const auto& [name, given] : task.tensors) {
        const MemoryScope scope(device, given.category);
        const Tensor tensor = device.upload(given.values, kAtItsStart);
        tensor.set_label(name);
        tensors.emplace(name, tensor);
    }
    return tensors;
}

std::map<std::string, HostTensor> read_left(
    Device& device, const std::map<std::string, Tensor>& tensors) {
    // This read belongs to no line of the program.
    constexpr SourceLine kAtItsEnd{"its end, where the grader reads what is left", 0};
    std::map<std::string, HostTensor> left;
    for (const auto& [name, tensor] : tensors)
        if (tensor) left.emplace(name, device.peek(tensor, kAtItsEnd));
    return left;
}

TaskResult make_run(const TaskRun& run, sim::CheckLevel check,
                    const std::function<RankResult(Rank&)>& run_rank) {
    sim::ClusterOptions options;
    options.ranks = static_cast<int>(run.ranks.size());
    options.spec = run.spec;
    options.numbers = run.numbers;
    options.workers = 1;  // not one per core, because each thread needs memory
    options.check = check;
    options.trace = true;
    options.memory_of_rank = run.memory_of_rank;
    const auto cluster = sim::make_cluster(options);
    TaskResult result;
    result.ranks.resize(run.ranks.size());
    try {
        result.report = cluster->run([&](Rank& rank) {
            result.ranks[static_cast<std::size_t>(rank.index())] = run_rank(rank);
        });
    } catch (...) {
        take_exception(result);
    }
    return result;
}

}  // namespace lockstep::lessons
