#include "tests/gpu/forked_cluster.hpp"

#include <atomic>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "gpu/cluster.hpp"
#include "gpu/launcher/control.hpp"
#include "gpu/survey.hpp"
#include "program/explain_stall.hpp"
#include "program/processes.hpp"
#include "sim/cluster.hpp"
#include "src/os/environment.hpp"
#include "src/run/run_report.hpp"
#include "tests/gpu/processes.hpp"

namespace lockstep::test {

namespace {

constexpr char kReport = 'R';
constexpr char kFailure = 'F';

class ForkedCluster final : public Cluster {
  public:
    ForkedCluster(int ranks, ForkedOptions options) : ranks_(ranks), options_(options) {}

    int size() const override { return ranks_; }

    RunReport run(const Program& program) override {
        constexpr int kMostSeconds = 120;
        address_ = gpu::fresh_address();
        const std::vector<gpu::ProcessEnd> ends = gpu::run_processes(
            ranks_, [&](int rank) { return run_rank(rank, program); }, kMostSeconds);
        for (const gpu::ProcessEnd& end : ends)
            if (end.said.starts_with(kFailure))
                throw std::runtime_error(end.said.substr(1));
        for (std::size_t rank = 0; rank < ends.size(); ++rank)
            if (!ends[rank].said.starts_with(kReport))
                throw std::runtime_error(fmt::format("rank {} ended with status {}: {}{}",
                                                     rank, ends[rank].status,
                                                     ends[rank].said, ends[rank].errors));
        return read_report(ends.front().said.substr(1));
    }

  private:
    std::string run_rank(int rank, const Program& program) const {
        std::unique_ptr<gpu::Control> control;
        try {
            control = gpu::join(rank, ranks_, address_, options_.timeout_seconds);
            control->set_explain([](const std::vector<std::string>& logs, int stalled) {
                return programs::stall_text(logs, stalled, 100);
            });
            gpu::ProcessOptions process_options;
            process_options.control = control.get();
            process_options.share_gpu = options_.share_gpu;
            if (options_.has_host) process_options.make_host = sim::make_host;
            process_options.on_failure = [&] { programs::tell_failure(*control); };
            process_options.examine = programs::check_calls;
            const auto process = gpu::Process::open(process_options);
            return kReport +
                   report_bytes(
                       process->make_cluster(ranks_, options_.trace)->run(program));
        } catch (...) {
            return failure_text(control.get());
        }
    }

    /// Called in a handler. Returns the run's first failure, but only on the rank that
    /// may print it.
    static std::string failure_text(gpu::Control* control) {
        if (control == nullptr) return kFailure + programs::ending_of_exception().text;
        const gpu::Failure first = programs::first_failure(*control);
        return control->claim_text() ? kFailure + first.text : "-";
    }

    int ranks_;
    ForkedOptions options_;
    std::string address_;
};

}  // namespace

std::unique_ptr<Cluster> make_forked_cluster(int ranks, ForkedOptions options) {
    if (ranks > count_gpus() && has_gpus_for(ranks)) options.share_gpu = true;
    return std::make_unique<ForkedCluster>(ranks, options);
}

int count_gpus() {
    static const int gpus = [] {
        const auto ends = gpu::run_processes(
            1, [](int) { return std::to_string(gpu::survey().gpus.size()); });
        return std::atoi(ends.front().said.c_str());
    }();
    return gpus;
}

bool has_gpus_for(int ranks) {
    const bool may_share = os::variable("SHARE_GPU") == "1";
    return ranks <= count_gpus() || (may_share && ranks == 2 && count_gpus() == 1);
}

std::string lacking_gpus(int ranks) {
    return fmt::format("{} ranks need as many GPUs; this machine has {}", ranks,
                       count_gpus());
}

double stall_seconds() {
    const std::optional<std::string> given = os::variable("STALL_SECONDS");
    return given ? std::stod(*given) : 30;
}

}  // namespace lockstep::test
