#pragma once

#include <string>
#include <vector>

#include "gpu/survey.hpp"

namespace lockstep::lessons {

/// One thing that Lockstep can use.
struct Finding {
    std::string part;  ///< "driver"
    bool there = false;
    std::string found;  ///< "CUDA 13.0"; if it is missing, one sentence of why
    // If it is missing:
    std::string gives;    ///< "--backend cuda and --backend nccl"
    std::string install;  ///< a command; empty if none would help
};

/// Returns compiler and libraries that this program was built with.
std::vector<Finding> build_findings();
/// Returns what the GPU twin has and lacks.
std::vector<Finding> gpu_findings(const gpu::Survey& survey);
/// Returns what starts a run's processes on several machines.
std::vector<Finding> launcher_findings();

/// Returns the backends that lessons can use: "sim", "cuda", "nccl".
std::vector<std::string> usable_backends(const gpu::Survey& survey);

/// Says all of it, in lines of at most `width` columns but for commands.
std::string doctor_text(const gpu::Survey& survey, int width);
/// Says all of it as one JSON document.
std::string doctor_json(const gpu::Survey& survey);

}  // namespace lockstep::lessons
