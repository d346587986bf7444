#include <any>

#include "lessons/runner/command_line.hpp"

namespace lockstep::lessons {

void declare_commands(CommandLine& line) {
    declare_lessons(line);
    declare_lesson(line);
    declare_hand_in(line);
    declare_book(line);
    declare_compare(line);
    declare_schedule(line);
    declare_mesh(line);
    declare_cluster(line);
    declare_calibrate(line);
    declare_serve(line);
    declare_fault(line);
    declare_word(line);
    declare_assignment(line);
    declare_grade(line);
    declare_doctor(line);
}

namespace {

/// Stores `made` in `request`, if the type of `made` is one of `Requests`.
template <typename... Requests>
void take(Request& request, const std::any& made, const std::variant<Requests...>&) {
    const auto take_one = [&](const auto* value) {
        if (value != nullptr) request = *value;
    };
    (take_one(std::any_cast<Requests>(&made)), ...);
}

}  // namespace

Request read_request(const std::vector<std::string>& words) {
    if (words == std::vector<std::string>{"--describe"})
        return TextRequest{description()};
    CommandLine line = command_line(words);
    declare_commands(line);
    const CommandLine::Asked asked = line.read();
    if (asked.command == nullptr) return TextRequest{asked.text};
    Request request;
    take(request, asked.command->request(), request);
    take(request, asked.command->request(), GraderRequest());
    return request;
}

}  // namespace lockstep::lessons
