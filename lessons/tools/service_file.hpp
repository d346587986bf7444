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

inline constexpr std::int64_t kMostPages = std::int64_t{1} << 20;  ///< of a device

/// `lockstep serve` reads this: a service, and the requests that come to it.
struct ServiceSettings {
    std::string file;   ///< as messages call it
    std::string model;  ///< as it was given
    std::optional<GptSizes> sizes;
    std::vector<MeshShape::Axis> axes;
    bool apart = false;
    bool numbers = false;
    ClusterSpec cluster;
    std::filesystem::path cluster_file;  ///< empty for one that is known by name
    DType dtype = DType::bf16;
    std::optional<std::int64_t> pages;  ///< none: as many as fit
    std::int64_t page_rows = 16;
    bool reuse = true;
    BatchRules rules{};
    ServiceLimits limits{};

    /// Requests at random, of a vocabulary that is the model's; else the list.
    std::optional<RequestMix> mix;
    struct Asked {
        double arrival = 0;  ///< in seconds
        std::int64_t prompt = 1;
        std::int64_t output = 1;
    };
    std::vector<Asked> list;
    std::int64_t shared = 0;  ///< tokens that all prompts begin with

    std::int64_t count() const {
        return mix ? mix->count : static_cast<std::int64_t>(list.size());
    }
    int size(const std::string& axis) const;
    int replicas() const { return size("dp") * size("ep"); }
    /// Ranks that work on the same requests.
    int ways() const { return size("tp") * (apart ? 2 : 1); }
    int ranks() const { return replicas() * ways(); }
    ServiceOptions options(std::int64_t with_pages) const;
};

/// Reads a JSON file of at most 64 MiB; a cluster that is no preset is a file beside it.
/// Throws UsageError with the file, the key and what was expected, and std::system_error
/// if it cannot be read.
ServiceSettings load_service(const std::filesystem::path& file);
/// Reads text; `name` stands for the file in messages.
ServiceSettings read_service(const std::string& text, const std::string& name);

/// Reads "dp=2,tp=4"; `what` names it in messages.
std::vector<MeshShape::Axis> read_service_mesh(const std::string& what,
                                               const std::string& text);

/// Throws UsageError unless all is there that a run needs, and if so many runs would take
/// too long, or too much of this machine's memory.
void require_possible(const ServiceSettings& settings, std::size_t runs = 1);

/// The requests, in the order of their arrivals; if there is a rate, so many come a
/// second, whatever the mix says.
std::vector<Request> requests_of(const ServiceSettings& settings,
                                 std::optional<double> per_second = {});

/// A file to begin with, which `lockstep serve --example` prints.
std::string_view example_service();

}  // namespace lockstep::lessons
