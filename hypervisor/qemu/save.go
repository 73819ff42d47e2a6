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

// hangUpPoll is how often QEMU is asked whether somebody is connected.
const hangUpPoll = time.Millisecond

// awaitHangUp returns when QEMU has noticed that nobody is connected to the
// channel. A VM that stops before that flushes its guest's last frame to the
// closed socket, and is saved with a port that waits for this frame to leave:
// no clone would hear its first host. Once the VM has stopped, QEMU does not
// look at the socket any more.
func (v *vm) awaitHangUp(ctx context.Context) error {
	poll := time.NewTicker(hangUpPoll)
	defer poll.Stop()
	for {
		var connected bool
		args := map[string]string{"path": "/chardevs/" + channelChardev, "property": "connected"}
		if err := v.qmp.Execute(ctx, "qom-get", args, &connected); err != nil || !connected {
			return err
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
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
