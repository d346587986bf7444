#include <nlohmann/json.hpp>
#include <system_error>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/report/files.hpp"
#include "src/report/machine.hpp"
#include "src/report/record.hpp"
#include "src/report/version.hpp"

namespace lockstep {

using Json = nlohmann::ordered_json;

namespace {

constexpr std::uint64_t kMostBytes = 16 << 20;

DType dtype_named(const std::string& name) {
    for (const DType dtype : {DType::f32, DType::f64, DType::i32, DType::bf16})
        if (name == name_of(dtype)) return dtype;
    throw UsageError("dtype " + name);
}

RunOptions options_of(const Json& json) {
    RunOptions options;
    json.at("lockstep").get<std::string>();
    json.at("lesson").get_to(options.lesson);
    json.at("backend").get_to(options.backend);
    json.at("ranks").get_to(options.ranks);
    options.dtype = dtype_named(json.at("dtype").get<std::string>());
    json.at("seed").get_to(options.seed);
    json.at("cluster").get_to(options.cluster);
    options.check = json.value("check", std::string("cheap"));
    options.sum_length = json.value("sum_length", std::int64_t{1});
    require(options.sum_length >= 1, "sum_length below 1");
    for (const auto& [key, value] : json.at("settings").items())
        options.settings[key] = value.get<std::string>();
    return options;
}

}  // namespace

std::string run_json(const Record& record) {
    const RunOptions& options = record.options;
    const Machine machine = this_machine();
    Json runs = Json::array();
    for (const auto& [name, report] : record.runs)
        runs.push_back(name);
    Json json{{"lockstep", kVersion},
              {"lesson", options.lesson},
              {"backend", options.backend},
              {"ranks", options.ranks},
              {"dtype", name_of(options.dtype)},
              {"seed", options.seed},
              {"cluster", options.cluster},
              {"check", options.check},
              {"sum_length", options.sum_length},
              {"settings", Json(options.settings)},
              {"runs", runs},
              {"machine",
               {{"cpu", machine.cpu},
                {"cores", machine.cores},
                {"system", machine.system},
                {"compiler", machine.compiler}}}};
    if (record.diagnosis) json["stopped_by"] = record.diagnosis->fault;
    if (!options.gpu.empty()) json["machine"]["gpu"] = options.gpu;
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

RunOptions read_run_options(const std::filesystem::path& folder) {
    const std::filesystem::path path = folder / "run.json";
    std::error_code ignored;
    require(std::filesystem::is_directory(folder, ignored),
            [&] { return folder.string() + ": there is no such folder"; });
    require(std::filesystem::exists(path, ignored), [&] {
        return folder.string() +
               ": this folder holds no record of a run: run.json is missing";
    });
    const std::string text = read_text_file(path, kMostBytes);
    try {
        return options_of(Json::parse(text));
    } catch (const Json::exception&) {
    } catch (const UsageError&) {
    }
    throw UsageError(path.string() + ": this is not the run.json of a record");
}

}  // namespace lockstep
