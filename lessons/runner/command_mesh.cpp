#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/runner/command_line.hpp"
#include "lessons/runner/reader.hpp"
#include "lessons/runner/terminal.hpp"
#include "lessons/tools/mesh_page.hpp"
#include "sim/cluster.hpp"
#include "src/core/require.hpp"
#include "src/cost/cluster_spec.hpp"
#include "src/pipeline/generators.hpp"
#include "src/report/files.hpp"
#include "src/report/mesh_picture.hpp"
#include "src/text/names.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kMostRanks = sim::ClusterOptions::kMaxRanks;

void declare_spread(Command& command, MeshRequest& request) {
    command.option(
        "--model", "NAME|SIZES",
        "spread this GPT over the mesh and show which rank holds which part: " +
            either(model_names()) + ", or sizes KEY=VALUE with commas between, see below",
        [&request](const std::string& option, const std::string& value) {
            request.model = read_model(option, value);
        });
    command.suggest(model_names());
    command.option("--zero", "STAGE",
                   "what is sharded over replicas: 0 nothing (default), 1 optimizer "
                   "state, 2 also gradients, 3 also weights",
                   whole_into(request.zero, 0, 3));
    command.flag("--sequence", "sequence parallelism along tp", request.sequence);
    command.option("--schedule", "NAME", "schedule of the pipeline; default 1f1b",
                   text_into(request.schedule));
    command.suggest(schedule_names());
    command.option("--chunks", "V", "parts of the model on a stage; default 1",
                   whole_into(request.chunks, 1, kMostChunks));
    command.footer(settings_help("Sizes of --model", model_settings()));
}

/// Throws UsageError if an option says how to spread a model, but there is no model.
void require_model(const MeshRequest& request) {
    if (request.model) return;
    for (const auto& [option, is_given] :
         {std::pair{"--zero", request.zero.has_value()},
          std::pair{"--sequence", request.sequence},
          std::pair{"--schedule", request.schedule.has_value()},
          std::pair{"--chunks", request.chunks.has_value()}})
        require(!is_given, "{} needs --model", option);
}

void require_known(const MeshRequest& request) {
    const MeshShape& shape = request.shape;
    require(shape.ranks() <= kMostRanks, "{} has {} ranks; at most {} are possible",
            shape.text(), shape.ranks(), kMostRanks);
    require(!request.per_node || !request.cluster,
            "use --per-node or --cluster, not both");
    require(!request.colour || shape.has(*request.colour), [&] {
        return fmt::format("--colour '{}': {} has no such axis",
                           printable(*request.colour), shape.text());
    });
    if (request.schedule) {
        const std::vector<std::string>& names = schedule_names();
        require(std::ranges::find(names, *request.schedule) != names.end(), [&] {
            return "--schedule: " + no_such("schedule", *request.schedule, names);
        });
    }
    require_model(request);
    require(
        !request.sequence || (shape.has("tp") && shape.size("tp") > 1),
        "--sequence shards tokens along tp, so an axis tp with several ranks is needed");
}

}  // namespace

void declare_mesh(CommandLine& line) {
    Command& command =
        line.add("mesh",
                 "Prints a mesh of devices: its ranks, the lines of its axes, planes and "
                 "nodes. With a model, also prints who holds which part of each "
                 "parameter. Axes may have any names; the slowest comes first. A GPT is "
                 "spread over axes named pp, dp, ep, cp and tp.");
    auto& request = command.asks_for<MeshRequest>();
    command.positional("SIZES", "axes and their sizes, as in pp=2,dp=2,cp=2,tp=2",
                       [&request](const std::string&, const std::string& value) {
                           request.shape = read_mesh_shape(value);
                       });
    command.repeated("--plane", "AXES",
                     "also the planes along these axes, as in dp,cp; may be repeated",
                     [&request](const std::string&, const std::string& value) {
                         request.planes.push_back(split_at_commas(value));
                     });
    command.option("--rank", "R",
                   "show only this rank: its coordinates, lines, planes and node",
                   whole_into(request.rank, 0, kMostRanks - 1));
    command.option("--per-node", "N", "devices per node (consecutive ranks); default 8",
                   whole_into(request.per_node, 1, kMostRanks));
    command.option("--cluster", "NAME|FILE",
                   "take the devices of a node from this cluster: " +
                       either(cluster_preset_names()) + ", or a JSON file",
                   text_into(request.cluster));
    command.suggest(cluster_preset_names());
    declare_spread(command, request);
    command.option("--svg", "FILE", "also draw it to this file", path_into(request.svg));
    command.option("--colour", "AXIS",
                   "colour devices by their place along this axis; default the slowest "
                   "axis of more than one rank",
                   text_into(request.colour));
    command.flag("--json", kJsonMeaning, request.json);
    command.finally([&request] { require_known(request); });
}

namespace {

int devices_per_node(const MeshRequest& request) {
    if (!request.cluster)
        return request.per_node.value_or(ClusterSpec().devices_per_node);
    try {
        return load_cluster(*request.cluster).devices_per_node;
    } catch (const UsageError& error) {
        throw UsageError(std::string("--cluster: ") + error.what());
    }
}

MeshOptions spread_of(const MeshRequest& request) {
    MeshOptions options;
    options.axes = request.shape.axes();
    options.zero = request.zero.value_or(0);
    options.sequence = request.sequence;
    options.schedule = request.schedule.value_or(options.schedule);
    options.chunks = request.chunks.value_or(1);
    const int stages = request.shape.has("pp") ? request.shape.size("pp") : 1;
    options.micro_batches = stages;  // does not change what ranks hold
    return options;
}

std::optional<ModelOnMesh> model_of(const MeshRequest& request) {
    if (!request.model) return std::nullopt;
    try {
        return model_on_mesh(*request.model, spread_of(request));
    } catch (const UsageError& error) {
        throw UsageError(
            fmt::format("--model on {}: {}", request.shape.text(), error.what()));
    }
}

MeshPicture picture_of(const MeshRequest& request, const ExaminedMesh& mesh) {
    MeshPicture picture = MeshPicture::of(mesh.shape(), mesh.settings.per_node);
    picture.title = mesh.shape().text();
    if (request.colour) picture.coloured = *request.colour;
    if (mesh.model) picture.labels = mesh.model->labels();
    picture.marked = mesh.settings.rank.value_or(-1);
    return picture;
}

}  // namespace

int run(const MeshRequest& request) {
    const ExaminedMesh mesh = examined_mesh(
        {request.shape, devices_per_node(request), request.planes, request.rank},
        model_of(request));
    MeshPicture picture = picture_of(request, mesh);
    if (request.svg && request.cluster)
        require_not_read("--svg", *request.svg, *request.cluster, "the cluster");
    if (request.svg)
        naming("--svg", *request.svg,
               [&](const auto& path) { write_text_file(path, mesh_svg(picture)); });
    if (request.json) {
        print(mesh_json(mesh));
        return kSuccess;
    }
    picture.labels.clear();  // the tables below give more details
    print(mesh_text(picture,
                    {window_columns(STDOUT_FILENO), wants_colour(STDOUT_FILENO), ""}) +
          "\n");
    print_found(mesh_page(mesh), request.svg);
    return kSuccess;
}

}  // namespace lockstep::lessons
