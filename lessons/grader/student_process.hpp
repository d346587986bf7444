#pragma once

#include <filesystem>
#include <string>

#include "lessons/grader/confine/confined_process.hpp"
#include "lessons/grader/remote/rank_session.hpp"

namespace lockstep::lessons {

/// A student's program as one rank, confined, with its line to the grader.
class StudentProcess final : public RankProcess {
  public:
    StudentProcess(const std::filesystem::path& folder, const std::string& program,
                   const Confinement& confinement);

    Frames& frames() override { return frames_; }
    End ending() override;

    /// What a rank of a student's program may use.
    static Confinement usual_confinement();

  private:
    StudentProcess(const std::filesystem::path& folder, const std::string& program,
                   const Confinement& confinement, os::SocketPair line);

    Confinement confinement_;
    os::Descriptor line_;
    Frames frames_;
    ConfinedProcess process_;
};

}  // namespace lockstep::lessons
