#include "program/run.hpp"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "gpu/launcher/control.hpp"
#include "program/backend.hpp"
#include "program/command_line.hpp"
#include "program/ending.hpp"
#include "program/processes.hpp"
#include "src/os/descriptor.hpp"
#include "src/report/record.hpp"
#include "src/report/write_diagnosis.hpp"
#include "src/run/run_report.hpp"
#include "src/text/utf8.hpp"

namespace lockstep {

namespace {

/// Adds the tensors that ranks kept to the outputs, under the names that Launch explains.
void put(NamedTensors& outputs, const RunReport& report, const std::string& prefix) {
    std::map<std::string, std::vector<std::size_t>> keepers;
    for (std::size_t rank = 0; rank < report.ranks.size(); ++rank)
        for (const auto& [name, tensor] : report.ranks[rank].kept)
            keepers[name].push_back(rank);
    for (const auto& [name, ranks] : keepers) {
        try {
            outputs.insert_or_assign(prefix + name, report.whole(name));
        } catch (const UsageError&) {  // the ranks' values differ
            for (const std::size_t rank : ranks)
                outputs.insert_or_assign(fmt::format("{}rank_{}/{}", prefix, rank, name),
                                         report.ranks[rank].kept.at(name));
        }
    }
}

std::string file_name(const char* path) {
    return path == nullptr ? "program" : std::filesystem::path(path).filename().string();
}

/// Removes the words that are not in `rest` from argc and argv. `rest` has argv's order.
void leave(int& argc, char** argv, const std::vector<std::string>& rest) {
    int left = 1;
    for (int i = 1; i < argc; ++i)
        if (static_cast<std::size_t>(left - 1) < rest.size() && argv[i] == rest[left - 1])
            argv[left++] = argv[i];
    argc = left;
    argv[argc] = nullptr;
}

}  // namespace

/// Remembers what each rank's program threw.
class Launch::Thrown {
  public:
    Program watched(const Program& program) {
        return [this, &program](Rank& rank) {
            try {
                program(rank);
            } catch (...) {
                const std::lock_guard lock(mutex_);
                what_.emplace_back(rank.index(), std::current_exception());
                throw;
            }
        };
    }
    /// In a catch block: returns the rank that threw this exception; -1 if none did.
    int rank() const {
        for (const auto& [rank, thrown] : what_)
            if (thrown == std::current_exception()) return rank;
        return -1;
    }

  private:
    std::mutex mutex_;
    std::vector<std::pair<int, std::exception_ptr>> what_;
};

class Launch::State {
  public:
    State(int& argc, char** argv, ProgramInfo info, bool takes_all);

    bool runs() const { return help_.empty() && !wrong_ && !ended_; }
    const programs::Options& options() const { return options_; }
    int ranks() const { return options_.ranks.value_or(info_.default_ranks); }
    int run(const Program& program, const Show& show, const std::string& name);

  private:
    void read(int& argc, char** argv, bool takes_all);
    void settle();
    void try_folder() const;
    int run_here(const Program& program, const Show& show, const std::string& name);
    void keep(RunReport report, const std::string& name);
    void write() const;
    int end();
    void leave_stopped(const FaultError& fault);
    void say(const std::string& sentence) const;
    bool leads() const { return processes_ == nullptr || processes_->leads(); }

    ProgramInfo info_;
    std::vector<std::string> words_;
    programs::Options options_;
    bool trace_ = false;
    std::string help_;          ///< if --help was given
    std::exception_ptr wrong_;  ///< the error that the words caused, if any
    std::optional<gpu::Placement> placement_;
    std::unique_ptr<programs::Processes> processes_;
    Record record_;
    Thrown* thrown_ = nullptr;  ///< of the current program
    bool ended_ = false;        ///< no more programs are run
    int status_ = programs::kSuccess;
};

Launch::State::State(int& argc, char** argv, ProgramInfo info, bool takes_all)
    : info_(std::move(info)), words_(argv + std::min(argc, 1), argv + argc) {
    if (info_.name.empty()) info_.name = file_name(argc > 0 ? argv[0] : nullptr);
    options_.values = programs::Settings(info_.settings, {});
    try {
        read(argc, argv, takes_all);
        if (help_.empty()) settle();
    } catch (...) {
        wrong_ = std::current_exception();
    }
}

/// Reads the options from the words.
void Launch::State::read(int& argc, char** argv, bool takes_all) {
    programs::CommandLine line(words_, {info_.name, info_.purpose, "", ""});
    programs::Command& command = line.program();
    programs::declare_backend(command, options_);
    programs::declare_world(command, options_);
    programs::declare_check(command, options_);
    programs::declare_settings(command, options_, "below");
    programs::declare_out(command, options_);
    command.flag("--trace", "with --out, also write a trace and a timeline", trace_);
    command.footer(programs::settings_help("Settings of " + info_.name, info_.settings) +
                   programs::settings_help("Settings (--set KEY=VALUE)",
                                           programs::common_settings()));
    const auto own = std::ranges::find(words_, "--");
    if (std::find(words_.begin(), own, "--help") != own)
        help_ = command.help();
    else
        leave(argc, argv, line.read_options(takes_all));
}

/// Completes the options for this machine. Throws if the machine does not support them.
void Launch::State::settle() {
    std::vector<programs::Setting> declared = programs::common_settings();
    declared.insert(declared.end(), info_.settings.begin(), info_.settings.end());
    options_.values = programs::Settings(declared, options_.settings);
    options_.run = programs::run_settings(options_.values);
    require(!trace_ || options_.out,
            "--trace needs --out DIR: the trace is written into the record there");
    const programs::Options asked = options_;
    placement_ = programs::placement_for(asked);
    options_ = programs::resolved(asked, info_.default_ranks, placement_);
    programs::say_backend(info_.name, asked, options_, placement_);
    programs::cluster_options(options_, ranks(), trace_);
    if (placement_ && placement_->rank != 0) options_.out.reset();
    if (!placement_) try_folder();  // else later, so that a failure reaches all ranks
    record_.options =
        programs::run_options(info_.name, options_, info_.default_ranks, info_.settings);
    record_.options.sum_length = info_.sum_length;
    record_.hta = options_.run.hta_traces;
}

void Launch::State::try_folder() const {
    if (options_.out) programs::naming("--out", *options_.out, require_record_folder);
}

int Launch::State::run(const Program& program, const Show& show,
                       const std::string& name) {
    if (ended_) return status_;
    Thrown thrown;
    thrown_ = &thrown;
    try {
        status_ = run_here(thrown.watched(program), show, name);
    } catch (...) {
        ended_ = true;
        status_ = end();
    }
    thrown_ = nullptr;
    return status_;
}

int Launch::State::run_here(const Program& program, const Show& show,
                            const std::string& name) {
    if (wrong_) std::rethrow_exception(wrong_);
    if (!help_.empty()) {
        ended_ = true;
        os::write_all(STDOUT_FILENO, help_, "standard output");
        return programs::kSuccess;
    }
    const bool is_member = options_.backend == "nccl";
    if (is_member && !placement_ && ranks() > 1) {
        ended_ = true;
        return programs::run_copies(ranks(), words_);
    }
    if (is_member && processes_ == nullptr) {
        processes_ = std::make_unique<programs::Processes>(options_, placement_, [this] {
            return programs::ending_of_exception(
                info_.name, thrown_ == nullptr ? -1 : thrown_->rank());
        });
        options_.process = &processes_->open(options_);
        if (placement_) try_folder();
    }
    RunReport report = programs::make_cluster(options_, ranks(), trace_)->run(program);
    if (leads()) {
        if (show) show(report);
        keep(std::move(report), name);
        write();
    }
    // Tells the other processes that they can end, too.
    if (processes_ != nullptr && processes_->control() != nullptr)
        processes_->control()->broadcast("done");
    return programs::kSuccess;
}

void Launch::State::keep(RunReport report, const std::string& name) {
    if (!options_.out) return;
    const auto taken = [&](const std::string& called) {
        return std::ranges::any_of(record_.runs,
                                   [&](const auto& run) { return run.first == called; });
    };
    std::string called = name;
    for (int again = 2; taken(called); ++again)
        called = fmt::format("{}_{}", name, again);
    put(record_.outputs, report, called == "run" ? "" : called + "/");
    record_.runs.emplace_back(called, std::move(report));
}

void Launch::State::write() const {
    if (!options_.out) return;
    programs::naming("--out", *options_.out,
                     [&](const auto& folder) { write_record(folder, record_); });
    say(fmt::format("the record of this run is in {}", options_.out->string()));
}

/// In a catch block: prints what ended the run, and returns the exit status.
int Launch::State::end() {
    std::optional<FaultError> fault;
    try {
        throw;
    } catch (const FaultError& found) {
        fault = found;
    } catch (...) {
    }
    int status = programs::kFailed;
    if (processes_ != nullptr && processes_->control() != nullptr)
        status = processes_->give_up();
    else
        status =
            programs::report(programs::ending_of_exception(info_.name, thrown_->rank()));
    if (fault && leads()) leave_stopped(*fault);
    return status;
}

void Launch::State::leave_stopped(const FaultError& fault) {
    const std::filesystem::path folder = options_.out.value_or(info_.name + ".stopped");
    try {
        if (options_.out) {
            record_.stopped_by(fault);
            write_record(folder, record_);
        } else {
            write_diagnosis(folder, fault);
        }
    } catch (const std::exception& error) {
        say(fmt::format("the stopped run could not be recorded: {}", error.what()));
        return;
    }
    std::string pictures;
    for (const char* name : {"wait_for_graph.svg", "timeline.svg"})
        if (std::filesystem::exists(folder / name))
            pictures +=
                (pictures.empty() ? ", with the pictures " : " and ") + std::string(name);
    say(fmt::format("the files of the stopped run are in {}{}", folder.string(),
                    pictures));
}

void Launch::State::say(const std::string& sentence) const {
    programs::report({programs::kSuccess,
                      fmt::format("{}: {}\n", info_.name, printable(sentence)), false});
}

Launch::Launch(int& argc, char** argv, ProgramInfo info)
    : Launch(argc, argv, std::move(info), false) {}

Launch::Launch(int& argc, char** argv, ProgramInfo info, bool takes_all)
    : state_(std::make_unique<State>(argc, argv, std::move(info), takes_all)) {}

Launch::~Launch() = default;

Launch::operator bool() const {
    return state_->runs();
}

const std::string& Launch::backend() const {
    return state_->options().backend;
}

int Launch::ranks() const {
    return state_->ranks();
}

DType Launch::dtype() const {
    return state_->options().dtype;
}

std::uint64_t Launch::seed() const {
    return state_->options().seed;
}

const programs::Settings& Launch::settings() const {
    return state_->options().values;
}

int Launch::run(const Program& program, const Show& show, const std::string& name) {
    return state_->run(program, show, name);
}

int run(int argc, char** argv, const Program& program, const Show& show,
        ProgramInfo info) {
    return Launch(argc, argv, std::move(info), true).run(program, show);
}

int run(int argc, char** argv, const std::function<void(Rank&, const Launch&)>& program,
        const Show& show, ProgramInfo info) {
    Launch launch(argc, argv, std::move(info), true);
    return launch.run([&](Rank& rank) { program(rank, launch); }, show);
}

}  // namespace lockstep
