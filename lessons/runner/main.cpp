#include <csignal>

#include "lessons/runner/command.hpp"
#include "lessons/runner/terminal.hpp"

namespace lockstep::lessons {

namespace {

struct Dispatch {
    int operator()(const TextRequest& request) const {
        print(request.text);
        return kSuccess;
    }
    int operator()(const LessonsRequest&) const { return list_lessons(); }
    int operator()(const LessonRequest& request) const {
        return run_lesson(request, arguments);
    }
    int operator()(const CompareRequest& request) const { return compare_runs(request); }
    int operator()(const BackendsRequest& request) const {
        return compare_backends(request);
    }
    int operator()(const ScheduleRequest& request) const {
        return show_schedule(request);
    }
    int operator()(const FaultRequest& request) const { return show_fault(request); }
    int operator()(const AssignmentsRequest&) const { return list_assignments(); }
    int operator()(const NewAssignmentRequest& request) const {
        return new_assignment(request);
    }
    int operator()(const TargetsRequest& request) const { return show_targets(request); }
    int operator()(const GradescopeRequest& request) const {
        return pack_gradescope(request);
    }
    int operator()(const GradeRequest& request) const { return grade_folder(request); }
    int operator()(const DoctorRequest& request) const { return run_doctor(request); }

    const std::vector<std::string>& arguments;
};

}  // namespace

}  // namespace lockstep::lessons

int main(int count, char** words) {
    using namespace lockstep::lessons;
    guard_standard_streams();
    std::signal(SIGXFSZ,
                SIG_IGN);  // a file over its limit is an error of write(), not our end
    try {
        const std::vector<std::string> arguments(words + (count > 0 ? 1 : 0),
                                                 words + count);
        return std::visit(Dispatch{arguments}, read_request(arguments));
    } catch (...) {
        return report_exception();
    }
}
