#include "gpu/launcher/control.hpp"

#include <thread>

#include "gpu/launcher/control_member.hpp"
#include "gpu/launcher/control_root.hpp"
#include "gpu/launcher/control_shared.hpp"
#include "gpu/launcher/socket.hpp"

namespace lockstep::gpu {

namespace {

std::unique_ptr<ControlService> make_service(ControlShared& shared) {
    const Placement& placement = shared.placement;
    if (placement.rank > 0) return std::make_unique<ControlMember>(shared);
    Descriptor listener;
    if (placement.size > 1)
        listener =
            listen_at(parse_address(placement.rendezvous.address, "the rendezvous"));
    return std::make_unique<ControlRoot>(shared, std::move(listener));
}

class ControlLine final : public Control {
  public:
    ControlLine(const Placement& placement, const ControlOptions& options)
        : shared_(placement, options),
          service_(make_service(shared_)),
          thread_([this] { service_->run(); }) {}

    ~ControlLine() override {
        shared_.leave();
        thread_.join();
    }

    const Placement& placement() const override { return shared_.placement; }

    std::vector<std::string> all_gather(const std::string& mine) override {
        return shared_.exchange(MessageKind::all_gather, mine);
    }
    std::string broadcast(const std::string& bytes) override {
        const std::string nothing;
        return std::move(
            shared_.exchange(MessageKind::broadcast, rank() == 0 ? bytes : nothing)
                .front());
    }

    void begin_watching() override {
        shared_.watch.begin();
        wake(shared_.waker);
    }
    void end_watching() noexcept override { shared_.watch.end(); }
    void progress() noexcept override { shared_.watch.progress(); }

    void set_describe(Describe describe) override {
        shared_.set_describe(std::move(describe));
    }
    void set_explain(Explain explain) override {
        shared_.set_explain(std::move(explain));
    }

    void fail(const Failure& failure) noexcept override {
        shared_.post({MessageKind::failure, pack(failure)});
    }
    bool stopped() const noexcept override { return shared_.stopped(); }
    void check() const override { shared_.check(); }
    bool claim_text() noexcept override { return shared_.claim_text(); }

    void await_welcome() { shared_.await_welcome(); }

  private:
    ControlShared shared_;
    std::unique_ptr<ControlService> service_;
    std::thread thread_;
};

}  // namespace

RunStopped::RunStopped(Failure failure)
    : std::runtime_error(failure.text), failure_(std::move(failure)) {}

std::unique_ptr<Control> Control::join(const Placement& placement,
                                       const ControlOptions& options) {
    auto line = std::make_unique<ControlLine>(placement, options);
    line->await_welcome();
    return line;
}

}  // namespace lockstep::gpu
