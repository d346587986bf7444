#include "lessons/runner/notebook.hpp"

#include <array>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "lessons/page/sha256.hpp"
#include "src/os/environment.hpp"
#include "src/report/files.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::array<const char*, 4> kOutcomes{"right", "right later", "wrong", "passed"};

std::string text_in(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

LessonNotes notes_of(const Json& json) {
    LessonNotes notes;
    notes.record = json.at("record").get<std::string>();
    for (const auto& [prediction, kept] : json.at("predictions").members()) {
        Answer answer;
        for (const Json& line : kept.at("typed").elements())
            answer.typed.push_back(line.get<std::string>());
        for (std::size_t i = 0; i < kOutcomes.size(); ++i)
            if (kept.at("outcome").is(kOutcomes[i]))
                answer.outcome = static_cast<Answer::Outcome>(i);
        answer.figure = kept.at("figure").get<std::string>();
        notes.answers.emplace(prediction, std::move(answer));
    }
    return notes;
}

}  // namespace

Score score_of(const std::map<std::string, Answer>& answers) {
    Score score;
    const std::array<int*, kOutcomes.size()> counts{&score.right, &score.right_later,
                                                    &score.wrong, &score.passed};
    for (const auto& [prediction, answer] : answers)
        ++*counts[static_cast<std::size_t>(answer.outcome)];
    return score;
}

std::string notebook_key(const RunOptions& run) {
    std::string key = fmt::format("{} ranks, {}, seed {}, {}", run.ranks,
                                  name_of(run.dtype), run.seed, run.cluster);
    for (const auto& [name, value] : run.settings)
        if (name != "--step") key += fmt::format(", {}={}", name, value);
    return key;
}

Json json_of(const LessonNotes& notes) {
    Json predictions = Json::object();
    for (const auto& [prediction, answer] : notes.answers)
        predictions[prediction] =
            Json{{"typed", Json(answer.typed)},
                 {"outcome", kOutcomes[static_cast<std::size_t>(answer.outcome)]},
                 {"figure", answer.figure}};
    const Score score = score_of(notes.answers);
    return {{"predictions", std::move(predictions)},
            {"score", Json{{"right", score.right},
                           {"right later", score.right_later},
                           {"wrong", score.wrong},
                           {"passed", score.passed}}},
            {"record", notes.record}};
}

Notebook::Notebook(std::filesystem::path file, std::string key)
    : file_(std::move(file)), key_(std::move(key)) {
    if (file_.empty()) return;
    try {
        const Json kept = Json::parse(text_in(file_));
        for (const auto& [options, notes] : kept.at("runs").members())
            notes_[options] = notes_of(notes);
        done_ = kept.at("done").get<bool>();
        step_ = kept.at("step").get<std::size_t>();
    } catch (const JsonError&) {
        // There is no file yet, or it is not a notebook: begin at the first step.
        notes_.clear();
        done_ = false;
    }
}

std::optional<std::size_t> Notebook::step() const {
    return step_ > 0 ? std::optional(step_) : std::nullopt;
}

const Answer* Notebook::answer(const std::string& prediction) const {
    const auto notes = notes_.find(key_);
    if (notes == notes_.end()) return nullptr;
    const auto found = notes->second.answers.find(prediction);
    return found == notes->second.answers.end() ? nullptr : &found->second;
}

Score Notebook::score() const {
    const auto notes = notes_.find(key_);
    return notes == notes_.end() ? Score() : score_of(notes->second.answers);
}

void Notebook::reach(std::size_t step) {
    if (step == step_) return;
    step_ = step;
    write();
}

void Notebook::finish(const std::string& metrics) {
    step_ = 0;
    done_ = true;
    notes_[key_].record = sha256(metrics);
    write();
}

void Notebook::put(const std::string& prediction, Answer answer) {
    notes_[key_].answers.emplace(prediction, std::move(answer));
    write();
}

void Notebook::write() const {
    if (file_.empty()) return;
    Json runs = Json::object();
    for (const auto& [options, notes] : notes_)
        runs[options] = json_of(notes);
    const Json all{{"step", step_}, {"done", done_}, {"runs", std::move(runs)}};
    try {
        std::filesystem::create_directories(file_.parent_path());
        write_text_file(file_, all.dump(1) + "\n");
    } catch (const std::exception&) {
        // The lesson continues, even if the notes cannot be written.
    }
}

std::filesystem::path notebook_file(const std::string& slug) {
    std::filesystem::path folder;
    const std::optional<std::string> state = os::variable("XDG_STATE_HOME");
    const std::optional<std::string> home = os::variable("HOME");
    if (state && !state->empty())
        folder = *state;
    else if (home && !home->empty())
        folder = std::filesystem::path(*home) / ".local" / "state";
    else
        return {};
    return folder / "lockstep" / (slug + ".json");
}

}  // namespace lockstep::lessons
