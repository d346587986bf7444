#include "lessons/runner/doctor.hpp"

#include <CLI/Version.hpp>
#include <boost/version.hpp>
#include <nlohmann/json.hpp>

#include <Eigen/Core>
#include <fmt/format.h>

#include "src/report/machine.hpp"

namespace lockstep::lessons {

std::vector<Finding> build_findings() {
    return {
        {"compiler", true, this_machine().compiler, "", ""},
        {"Eigen", true,
         fmt::format("{}.{}.{}", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION,
                     EIGEN_MINOR_VERSION),
         "", ""},
        {"Boost", true,
         fmt::format("{}.{}.{}", BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000,
                     BOOST_VERSION % 100),
         "", ""},
        {"fmt", true,
         fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100,
                     FMT_VERSION % 100),
         "", ""},
        {"CLI11", true, CLI11_VERSION, "", ""},
        {"nlohmann-json", true,
         fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                     NLOHMANN_JSON_VERSION_PATCH),
         "", ""},
    };
}

}  // namespace lockstep::lessons
