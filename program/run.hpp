#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "program/settings.hpp"
#include "src/comm/rank.hpp"
#include "src/core/dtype.hpp"

namespace lockstep {

/// The name, purpose, settings and defaults of a program.
struct ProgramInfo {
    std::string name = "";     ///< in messages and records; if empty, the file's name
    std::string purpose = "";  ///< --help begins with it
    int default_ranks = 4;
    /// The program's own settings, for --set; Launch::settings() has their values.
    std::vector<programs::Setting> settings = {};
    /// The number of terms in the longest sum of a kept tensor. `lockstep compare`
    /// derives from this number how much two runs may differ.
    std::int64_t sum_length = 1;
};

/// Gets the report of each run; called only in rank 0's process.
using Show = std::function<void(const RunReport& report)>;

/// Runs programs in the world that a command line asks for. The same binary runs on
/// virtual devices, on one GPU, or as one process per GPU, on its own or under mpirun,
/// srun or torchrun. The options are those of lessons; `--help` prints them:
///
///     --backend sim|cuda|nccl|gpu   --ranks N   --cluster NAME|FILE
///     --dtype f32|f64|bf16   --seed S   --check cheap|full
///     --set KEY=VALUE   --out DIR   --trace
///
/// --out writes a record, which `lockstep compare` reads. The record has the tensors that
/// ranks keep. A tensor has one entry, under its name, if it is a shard or if it has the
/// same bits on all ranks that kept it. Otherwise each rank has an entry "rank_R/NAME".
/// --trace adds a trace and a timeline.
///
/// A mistake ends a run with a sentence or a diagnosis on standard error. A diagnosis
/// says where its files and pictures are: in the record, or in NAME.stopped without
/// --out.
///
/// With --backend nccl each rank is a process, and each process runs main. Code of main
/// outside run() runs once per rank; code that must run once belongs in a Show. If no
/// launcher started the processes, the first process starts a copy of itself for each
/// rank, and waits for the copies in run(); it runs no program itself.
class Launch {
  public:
    /// Removes Launch's options from argc and argv. The program keeps the other words,
    /// and all words after "--". This constructor neither prints nor throws: run()
    /// reports what was wrong.
    Launch(int& argc, char** argv, ProgramInfo info = {});
    ~Launch();
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;

    /// Returns whether run() will run a program, instead of printing help or an error.
    explicit operator bool() const;

    // If an option was wrong, these functions may return defaults.

    const std::string& backend() const;  ///< sim, cuda or nccl
    int ranks() const;
    DType dtype() const;
    std::uint64_t seed() const;
    const programs::Settings& settings() const;

    /// Runs the program on every device; then shows and records the results. Launch can
    /// make several runs, of one program or of different ones. Each run has a name in the
    /// record. The names of kept tensors begin with the run's name, unless that is "run".
    /// Returns the status for main: 0; 1 if the program made a mistake or threw; 2 for
    /// wrong usage (also UsageError); 3 if the machine lacks something. After a status
    /// other than 0, later calls run nothing.
    int run(const Program& program, const Show& show = {},
            const std::string& name = "run");

  private:
    friend int run(int argc, char** argv, const Program& program, const Show& show,
                   ProgramInfo info);
    friend int run(int argc, char** argv,
                   const std::function<void(Rank&, const Launch&)>& program,
                   const Show& show, ProgramInfo info);

    class State;
    class Thrown;
    Launch(int& argc, char** argv, ProgramInfo info, bool takes_all);

    std::unique_ptr<State> state_;
};

/// Runs a program without arguments of its own. Refuses unknown arguments.
///
///     int main(int argc, char** argv) { return lockstep::run(argc, argv, program); }
int run(int argc, char** argv, const Program& program, const Show& show = {},
        ProgramInfo info = {});

/// For a program that reads --dtype, --seed or settings.
int run(int argc, char** argv, const std::function<void(Rank&, const Launch&)>& program,
        const Show& show = {}, ProgramInfo info = {});

}  // namespace lockstep
