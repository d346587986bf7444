#include "src/pipeline/load_schedule.hpp"

#include "src/report/files.hpp"

namespace lockstep {

Schedule load_schedule(const std::filesystem::path& file) {
    constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;
    const std::string text = read_text_file(file, kMostBytes);
    return file.extension() == ".csv"
               ? read_schedule_csv(text, file.string())
               : read_schedule_json(text, file.string());
}

}  // namespace lockstep
