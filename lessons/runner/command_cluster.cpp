#include <unistd.h>

#include "lessons/runner/command_line.hpp"
#include "lessons/runner/reader.hpp"
#include "lessons/runner/terminal.hpp"
#include "lessons/tools/cluster_page.hpp"
#include "sim/cluster.hpp"
#include "src/core/require.hpp"
#include "src/report/files.hpp"

namespace lockstep::lessons {

void declare_cluster(CommandLine& line) {
    Command& command = line.add(
        "cluster",
        "Shows a cluster's figures, their sources, and the bus bandwidth of its "
        "collectives by size as nccl-tests prints it, so you can compare it with yours.");
    auto& request = command.asks_for<ClusterRequest>();
    command.positional("NAME|FILE",
                       either(cluster_preset_names()) +
                           ", one of these with -data-sheet behind it, or a JSON file",
                       text_into(request.cluster));
    command.suggest(cluster_preset_names());
    command.option("--ranks", "N",
                   "time collectives over N devices; default: one node, and two nodes",
                   whole_into(request.ranks, 2, sim::ClusterOptions::kMaxRanks));
    command.option("--svg", "FILE", "also draw the bus bandwidths to this file",
                   path_into(request.svg));
    command.flag("--json", kJsonMeaning, request.json);
}

int run(const ClusterRequest& request) {
    const ExaminedCluster cluster =
        examined_cluster(load_cluster(request.cluster), request.ranks);
    if (request.svg) {
        require_not_read("--svg", *request.svg, request.cluster, "the cluster");
        require(!bandwidth_plots(cluster).empty(),
                "--svg: no collective of {} takes time, so there is nothing to draw",
                printable(cluster.spec.name));
        naming("--svg", *request.svg, [&](const auto& path) {
            write_text_file(path, plots_svg(bandwidth_plots(cluster)));
        });
    }
    if (request.json) {
        print(cluster_json(cluster));
        return kSuccess;
    }
    print_document(cluster_page(cluster));
    print("\n");
    for (const Plot& plot : bandwidth_plots(cluster))
        print(plot_text(plot, window_columns(STDOUT_FILENO)) + "\n");
    print_found({}, request.svg);
    return kSuccess;
}

}  // namespace lockstep::lessons
