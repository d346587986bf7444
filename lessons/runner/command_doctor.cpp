#include <unistd.h>

#include "lessons/runner/command_line.hpp"
#include "lessons/runner/terminal.hpp"
#include "lessons/tools/doctor.hpp"

namespace lockstep::lessons {

void declare_doctor(CommandLine& line) {
    Command& command = line.add("doctor",
                                "Shows what this machine can do, and for each missing "
                                "part what it is for and how to install it.");
    command.flag("--json", kJsonMeaning, command.asks_for<DoctorRequest>().json);
}

int run(const DoctorRequest& request) {
    const gpu::Survey survey = gpu::survey();
    print(request.json ? doctor_json(survey)
                       : doctor_text(survey, window_columns(STDOUT_FILENO)));
    return kSuccess;
}

}  // namespace lockstep::lessons
