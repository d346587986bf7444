#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/cost/cluster_spec.hpp"
#include "src/inference/gpt_service.hpp"
#include "src/inference/request_mix.hpp"
#include "src/inference/service_report.hpp"
#include "src/nn/gpt_kit.hpp"

namespace lockstep::lessons {

inline constexpr std::int64_t kMostPages = std::int64_t{1} << 20;  ///< per device

/// The input of `lockstep serve`: a service, and the requests that come to it.
struct ServiceSettings {
    std::string file;   ///< its name in messages
    std::string model;  ///< as written in the file
    std::optional<GptSizes> sizes;
    std::vector<MeshShape::Axis> axes;
    bool apart = false;
    bool numbers = false;
    ClusterSpec cluster;
    std::filesystem::path cluster_file;  ///< empty for a cluster that is known by name
    DType dtype = DType::bf16;
    std::optional<std::int64_t> pages;  ///< none: all that fit
    std::int64_t page_rows = 16;
    bool reuse = true;
    BatchRules rules{};
    ServiceLimits limits{};

    /// Random requests with the model's vocabulary. If not set, the list is used.
    std::optional<RequestMix> mix;
    struct Asked {
        double arrival = 0;  ///< in seconds
        std::int64_t prompt = 1;
        std::int64_t output = 1;
    };
    std::vector<Asked> list;
    std::int64_t shared = 0;  ///< number of tokens with which all prompts begin

    std::int64_t count() const {
        return mix ? mix->count : static_cast<std::int64_t>(list.size());
    }
    int size(const std::string& axis) const;
    int replicas() const { return size("dp") * size("ep"); }
    /// The number of ranks that work on the same requests.
    int ways() const { return size("tp") * (apart ? 2 : 1); }
    int ranks() const { return replicas() * ways(); }
    ServiceOptions options(std::int64_t with_pages) const;
};

/// Reads a JSON file of at most 64 MiB. A cluster that is not a preset is a file in this
/// file's folder. Throws UsageError with the file, the key and what was expected, and
/// std::system_error if the file cannot be read.
ServiceSettings load_service(const std::filesystem::path& file);
/// Reads text; `name` is the file's name in messages.
ServiceSettings read_service(const std::string& text, const std::string& name);

/// Reads "dp=2,tp=4"; `what` is the file's name in messages.
std::vector<MeshShape::Axis> read_service_mesh(const std::string& what,
                                               const std::string& text);

/// Throws UsageError if a setting that a run needs is missing, or if this number of runs
/// would need too much of this machine's time or memory.
void require_possible(const ServiceSettings& settings, std::size_t runs = 1);

/// Returns the requests in the order of their arrivals. A given rate replaces the mix's
/// rate.
std::vector<Request> requests_of(const ServiceSettings& settings,
                                 std::optional<double> per_second = {});

/// Returns an example file, which `lockstep serve --example` prints.
std::string_view example_service();

}  // namespace lockstep::lessons
