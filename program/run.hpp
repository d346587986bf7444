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

/// How a program is known, and what it takes if nothing is said.
struct ProgramInfo {
    std::string name = "";     ///< in messages and records; empty is the file's, "ring"
    std::string purpose = "";  ///< --help begins with it
    int default_ranks = 4;
    /// Settings of its own, for --set KEY=VALUE; Launch::settings() has their values.
    std::vector<programs::Setting> settings = {};
    /// Terms of the longest sum behind what is kept: `lockstep compare` derives from it
    /// how far two runs may be apart.
    std::int64_t sum_length = 1;
};

/// Is given what a run left: once, in the process of rank 0.
using Show = std::function<void(const RunReport& report)>;

/// Runs programs in the world that a command line asks for. The same binary runs on
/// virtual devices, on one GPU, and as one process a GPU, by itself or under mpirun, srun
/// or torchrun. It understands what lessons do, and `--help` prints it:
///
///     --backend sim|cuda|nccl|gpu   --ranks N   --cluster NAME|FILE   --dtype
///     f32|f64|bf16
///     --seed S   --check cheap|full   --set KEY=VALUE   --out DIR   --trace
///
/// The record that --out asks for, which `lockstep compare` reads, has what ranks keep: a
/// tensor under its name if it is a shard, or if all that kept it kept the same bits;
/// else each rank's as "rank_R/NAME". --trace adds a trace and a timeline.
///
/// A mistake ends a run with a sentence or a diagnosis on standard error. A diagnosis
/// says where its files and pictures are: in the record, or in NAME.stopped if none was
/// asked for.
///
/// With --backend nccl each rank is a process, and all of them come through main. What
/// main does beside runs, all do: what should be done once belongs into a Show. A process
/// that nobody started as one of several starts a copy of itself for each rank, and waits
/// for them in run(); it runs no program itself.
class Launch {
  public:
    /// Takes its options out of argc and argv; what is left there is the program's own,
    /// and so is everything behind "--". Neither prints nor throws: run() says what was
    /// wrong.
    Launch(int& argc, char** argv, ProgramInfo info = {});
    ~Launch();
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;

    /// Returns whether run() will run a program, and not print help or say what was
    /// wrong.
    explicit operator bool() const;

    // If an option was wrong, these may have their defaults.

    const std::string& backend() const;  ///< sim, cuda or nccl
    int ranks() const;
    DType dtype() const;
    std::uint64_t seed() const;
    const programs::Settings& settings() const;

    /// Runs the program on every device, and shows and records what it left. A program
    /// may be run again, or another: each run has a name in the record, which comes
    /// before the names of what it keeps unless it is "run". Returns what main should: 0;
    /// 1 if the program made a mistake or threw; 2 for wrong usage (also UsageError); 3
    /// if the machine lacks something. Once it is not 0, nothing runs any more.
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

/// Runs a program that has no arguments of its own: others than Launch's are refused.
///
///     int main(int argc, char** argv) { return lockstep::run(argc, argv, program); }
int run(int argc, char** argv, const Program& program, const Show& show = {},
        ProgramInfo info = {});

/// For a program that looks at --dtype, --seed or settings.
int run(int argc, char** argv, const std::function<void(Rank&, const Launch&)>& program,
        const Show& show = {}, ProgramInfo info = {});

}  // namespace lockstep
