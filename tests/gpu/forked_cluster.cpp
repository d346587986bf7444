#include "tests/gpu/forked_cluster.hpp"

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "gpu/cluster.hpp"
#include "gpu/launcher/control.hpp"
#include "gpu/survey.hpp"
#include "lessons/runner/command.hpp"
#include "lessons/runner/explain_stall.hpp"
#include "lessons/runner/processes.hpp"
#include "src/report/report_bytes.hpp"

namespace lockstep::test {

namespace {

constexpr char kReport = 'R';
constexpr char kFailure = 'F';

/// A child process and what it writes.
struct Child {
    pid_t process = -1;
    int output = -1;
};

/// Forks; `body` gives what the child writes. The child ends without a word to the test
/// program's exit handlers.
template <typename Body>
Child fork_child(Body body) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe failed");
    const pid_t process = ::fork();
    if (process < 0) throw std::runtime_error("fork failed");
    if (process > 0) {
        ::close(ends[1]);
        return {process, ends[0]};
    }
    ::close(ends[0]);
    const std::string text = body();
    for (std::size_t written = 0; written < text.size();) {
        const ssize_t count =
            ::write(ends[1], text.data() + written, text.size() - written);
        if (count <= 0) break;
        written += static_cast<std::size_t>(count);
    }
    ::_exit(0);
}

std::string read_all(Child& child) {
    std::string text;
    char block[65536];
    for (ssize_t count = 0; (count = ::read(child.output, block, sizeof block)) > 0;)
        text.append(block, static_cast<std::size_t>(count));
    ::close(child.output);
    int status = 0;
    ::waitpid(child.process, &status, 0);
    return text;
}

class ForkedCluster final : public Cluster {
  public:
    ForkedCluster(int ranks, ForkedOptions options) : ranks_(ranks), options_(options) {}

    int size() const override { return ranks_; }

    RunReport run(const Program& program) override {
        static std::atomic<int> runs{0};
        address_ = fmt::format("unix:lockstep-test-{}-{}", ::getpid(), runs++);
        std::vector<Child> children;
        for (int rank = 0; rank < ranks_; ++rank)
            children.push_back(fork_child([&] { return run_rank(rank, program); }));
        std::vector<std::string> results;
        for (Child& child : children)
            results.push_back(read_all(child));
        for (const std::string& result : results)
            if (result.starts_with(kFailure)) throw std::runtime_error(result.substr(1));
        for (int rank = 0; rank < ranks_; ++rank)
            if (results[static_cast<std::size_t>(rank)].empty())
                throw std::runtime_error(
                    fmt::format("rank {} ended without a word", rank));
        return read_report(results.front().substr(1));
    }

  private:
    std::string run_rank(int rank, const Program& program) const {
        std::unique_ptr<gpu::Control> control;
        try {
            gpu::Placement placement;
            placement.rank = placement.local_rank = rank;
            placement.size = placement.local_size = ranks_;
            placement.rendezvous.address = address_;
            placement.launcher = "test";
            control = gpu::Control::join(placement, {options_.timeout_seconds});
            control->set_explain([](const std::vector<std::string>& logs, int stalled) {
                return lessons::stall_text(logs, stalled, 100);
            });
            const auto process =
                gpu::Process::open({control.get(), false, options_.share_gpu});
            return kReport +
                   report_bytes(
                       process->make_cluster(ranks_, options_.trace)->run(program));
        } catch (...) {
            return failure_text(control.get());
        }
    }

    /// In a handler: the first failure of all, on the rank that may say it.
    static std::string failure_text(gpu::Control* control) {
        if (control == nullptr) return kFailure + lessons::ending_of_exception().text;
        const gpu::Failure first = lessons::first_failure(*control);
        return control->claim_text() ? kFailure + first.text : "-";
    }

    int ranks_;
    ForkedOptions options_;
    std::string address_;
};

}  // namespace

std::unique_ptr<Cluster> make_forked_cluster(int ranks, ForkedOptions options) {
    return std::make_unique<ForkedCluster>(ranks, options);
}

int count_gpus() {
    Child child = fork_child([] { return std::to_string(gpu::survey().gpus.size()); });
    return std::atoi(read_all(child).c_str());
}

}  // namespace lockstep::test
