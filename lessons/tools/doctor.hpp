#pragma once

#include <string>
#include <vector>

#include "gpu/survey.hpp"

namespace lockstep::lessons {

/// A part that Lockstep can use.
struct Finding {
    std::string part;  ///< "driver"
    bool there = false;
    std::string found;  ///< "CUDA 13.0", or a sentence: why it is missing
    // Only for a missing part:
    std::string gives;    ///< "--backend cuda and --backend nccl"
    std::string install;  ///< a command; empty if no command would help
};

/// Returns the compiler and the libraries that this program was built with.
std::vector<Finding> build_findings();
/// Returns the GPU twin and the parts that it needs, present or missing.
std::vector<Finding> gpu_findings(const gpu::Survey& survey);
/// Returns the launchers, which start a run's processes on several machines.
std::vector<Finding> launcher_findings();

/// Returns the backends that lessons can use: "sim", "cuda", "nccl".
std::vector<std::string> usable_backends(const gpu::Survey& survey);

/// Returns all findings as text, in lines of at most `width` columns except commands.
std::string doctor_text(const gpu::Survey& survey, int width);
/// Returns all findings as one JSON document.
std::string doctor_json(const gpu::Survey& survey);

}  // namespace lockstep::lessons
