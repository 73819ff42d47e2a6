package qemu

import (
	"context"
	"os"
	"time"
)

// Save implements hypervisor.VM.
func (v *vm) Save(ctx context.Context, state *os.File) error {
	if err := v.awaitHangUp(ctx); err != nil {
		return v.failed("save", "wait until the channel is disconnected", v.deathOr(err))
	}
	return v.save(ctx, state)
}

// hangUpPoll is the interval of polling QEMU for a connection.
const hangUpPoll = time.Millisecond

// awaitHangUp waits until QEMU has noticed that the connections to the guest are closed. A VM that stops before that writes
// its guest's last frame to the closed socket. It is saved with a port that waits for this frame to leave, and its
// clones would not read from their first host. A stopped QEMU does not poll the socket any more.
func (v *vm) awaitHangUp(ctx context.Context) error {
	poll := time.NewTicker(hangUpPoll)
	defer poll.Stop()
	for _, chardev := range []string{channelChardev, shareChardev} {
		for connected := true; connected; {
			args := map[string]string{"path": "/chardevs/" + chardev, "property": "connected"}
			if err := v.qmp.Execute(ctx, "qom-get", args, &connected); err != nil {
				return err
			}
			if !connected {
				break
			}
			select {
			case <-poll.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

func (v *vm) save(ctx context.Context, state *os.File) error {
	if err := v.Pause(ctx); err != nil {
		return err
	}
	sub := v.qmp.Subscribe("MIGRATION")
	defer sub.Cancel()
	err := v.migration(ctx)
	if err == nil {
		err = v.qmp.ExecuteFile(ctx, "getfd", map[string]any{"fdname": stateName}, nil, state)
	}
	if err == nil {
		err = v.qmp.Execute(ctx, "migrate", map[string]any{"uri": "fd:" + stateName}, nil)
	}
	if err == nil {
		err = migrated(ctx, sub)
	}
	if err != nil {
		return v.failed("save", "save the VM", v.deathOr(err))
	}
	return nil
}
