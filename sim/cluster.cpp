#include "sim/cluster.hpp"

#include <cstdlib>
#include <sstream>
#include <string_view>

#include "sim/device.hpp"
#include "sim/engine.hpp"
#include "src/core/require.hpp"

namespace lockstep::sim {

namespace {

class VirtualCluster final : public Cluster {
  public:
    explicit VirtualCluster(ClusterOptions options) : options_(std::move(options)) {}
    int size() const override { return options_.ranks; }
    RunReport run(const Program& program) override {
        return Engine(options_).run(program);
    }

  private:
    ClusterOptions options_;
};

}  // namespace

Checks checks_of(const std::string& who, const std::string& text) {
    Checks checks;
    std::istringstream words(text);
    std::string word;
    std::getline(words, word, ',');
    bool is_known = word == "full" || word == "cheap";
    if (word == "full") checks.level = CheckLevel::full;
    is_known = is_known && !text.ends_with(',');
    while (std::getline(words, word, ',')) {
        is_known = is_known && checks.level == CheckLevel::full &&
                   word.starts_with('-') && can_be_intended(word.substr(1));
        if (is_known) checks.without.insert(word.substr(1));
    }
    require(is_known,
            "{} is '{}'; it may be full or cheap, or full without classes from F21 to "
            "F29, as in full,-F21",
            who, text);
    return checks;
}

Checks checks_asked() {
    const char* const asked = std::getenv("LOCKSTEP_CHECK");
    if (asked == nullptr || std::string_view(asked).empty()) return {};
    return checks_of("LOCKSTEP_CHECK", asked);
}

CheckLevel check_level_asked() {
    return checks_asked().level;
}

std::unique_ptr<Cluster> make_cluster(ClusterOptions options) {
    require(options.ranks >= 1 && options.ranks <= ClusterOptions::kMaxRanks,
            "a cluster of {} ranks was asked for; it has 1 to {}", options.ranks,
            static_cast<int>(ClusterOptions::kMaxRanks));
    require(options.workers >= 0 && options.workers <= 256,
            "{} workers were asked for; 0 (one per core) to 256 are possible",
            options.workers);
    require(
        options.spec.devices_per_node >= 1 && options.spec.network_ports >= 0 &&
            options.spec.host_links >= 0,
        "nodes with {} devices, {} network ports and {} host links were asked for; at "
        "least 1 device, and 0 (one per device) or more ports and links, are expected",
        options.spec.devices_per_node, options.spec.network_ports,
        options.spec.host_links);
    return std::make_unique<VirtualCluster>(std::move(options));
}

std::unique_ptr<Cluster> make_cluster(int ranks, const std::string& cluster) {
    ClusterOptions options;
    options.ranks = ranks;
    options.spec = load_cluster(cluster);
    return make_cluster(std::move(options));
}

std::unique_ptr<Device> make_host(int index, DeviceMonitor& monitor, PinnedPages& pages) {
    return std::make_unique<CpuDevice>(index, monitor, &pages);
}

}  // namespace lockstep::sim
