#include "tests/pipeline/written_schedule.hpp"

#include <sstream>
#include <stdexcept>

namespace lockstep::test {

std::vector<Instruction> written_work(const std::string& line) {
    std::vector<Instruction> work;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
        const std::vector<Instruction> read = read_instructions(word);
        if (read.empty()) throw std::invalid_argument(word + " is no instruction");
        work.insert(work.end(), read.begin(), read.end());
    }
    return work;
}

Schedule written_schedule(const PipelineShape& shape,
                          const std::vector<std::string>& lines) {
    Schedule schedule = empty_schedule("written", shape);
    for (std::size_t stage = 0; stage < lines.size(); ++stage)
        schedule.work.at(stage) = written_work(lines[stage]);
    return schedule;
}

std::vector<std::string> lines_of(const Schedule& schedule) {
    std::vector<std::string> lines;
    for (const auto& work : schedule.work) {
        std::string& line = lines.emplace_back();
        for (const std::string& text : texts_of(work))
            line += (line.empty() ? "" : " ") + text;
    }
    return lines;
}

Place place_of(const Schedule& schedule, int stage, const std::string& text) {
    const auto& work = schedule.of_stage(stage);
    for (std::size_t i = 0; i < work.size(); ++i)
        if (text_of(work[i]) == text) return {stage, static_cast<int>(i)};
    throw std::out_of_range(text + " is not on the stage");
}

}  // namespace lockstep::test
