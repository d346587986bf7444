#include "lessons/runner/command.hpp"

int main(int count, char** words) {
    using namespace lockstep::lessons;
    return run_main(count, words, [](const auto& arguments) {
        return std::visit(
            [&](const auto& asked) -> int {
                if constexpr (std::is_same_v<decltype(asked), const GraderRequest&>)
                    become_grader(arguments);
                else
                    return run(asked);
            },
            read_request(arguments));
    });
}
