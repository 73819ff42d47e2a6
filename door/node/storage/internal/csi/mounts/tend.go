package mounts

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/csi/driver"
	"github.com/bulkhead-project/bulkhead/internal/retry"
)

const (
	// tendEvery is the interval between checks of published volumes.
	tendEvery = time.Minute
	// lookTimeout limits how long requests to the API server may delay an unmount.
	lookTimeout = 10 * time.Second
)

// pauses are the pauses between attempts to unmount volumes of removed pods.
var pauses = retry.Pauses{First: time.Second, Last: time.Minute}

// Tend looks after published volumes until ctx ends: it publishes them again if their drivers want that, expands them
// with their claims, and measures their usage. Close waits for calls that are still running.
func (m *Mounter) Tend(ctx context.Context) {
	for retry.Sleep(ctx, tendEvery, nil) {
		m.startRounds(ctx)
	}
}

// startRounds starts a round for each driver without a running one, so that a hanging driver does not delay others.
func (m *Mounter) startRounds(ctx context.Context) {
	drivers := map[string][]key{}
	for _, r := range m.list() {
		drivers[r.Driver] = append(drivers[r.Driver], r.key())
	}
	for name, keys := range drivers {
		if _, busy := m.tending.LoadOrStore(name, true); busy {
			continue
		}
		if !m.startWork() {
			return
		}
		go func() { // Close waits for it
			defer m.all.Done()
			defer m.tending.Delete(name)
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(m.ctx, cancel)() // Close ends the pauses too
			_ = pauses.Until(ctx, nil, func() error { return m.round(ctx, name, keys) }, func(err error) {
				m.o.Logger.Warn("volumes are not published again, retrying", "driver", name, "error", err)
			}) // only ctx ends it without success
		}()
	}
}

// round looks after the volumes of one driver, until a call times out. The order of volumes is random, so the next
// round starts with another one. It fails if the CSIDriver cannot be read, and then publishes no volume again.
func (m *Mounter) round(ctx context.Context, name string, keys []key) error {
	rules, unread := m.rules(ctx, name)
	for _, k := range keys {
		if ctx.Err() != nil {
			break
		}
		err := m.tendVolume(ctx, k, rules)
		if err != nil {
			m.o.Logger.Warn("checking a CSI volume failed", "driver", name, "uid", k.uid, "volume", k.volume, "error", err)
		}
		if timedOut(err) {
			break
		}
	}
	return unread
}

// timedOut reports whether a driver did not answer in time.
func timedOut(err error) bool {
	var failed *driver.Error
	return errors.As(err, &failed) && failed.Code == codes.DeadlineExceeded
}

// tendVolume looks after one volume if it is still published.
func (m *Mounter) tendVolume(ctx context.Context, k key, rules storagev1.CSIDriverSpec) error {
	r := m.get(k)
	if r == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	unlock, err := m.locks.lock(ctx, r.id())
	if err != nil {
		return err
	}
	defer unlock()
	if r = m.get(k); r == nil || r.Phase != published {
		return nil
	}
	a := &attempt{m: m, r: r, rules: rules, driver: m.o.Driver(r.Driver)}
	if a.driver == nil {
		return nil // the driver registers again, or the pod ends
	}
	if err := a.republish(ctx); err != nil {
		return err
	}
	if err = a.expand(ctx); timedOut(err) {
		return err
	}
	return errors.Join(err, a.measure(ctx))
}

// republish publishes the volume again if its driver wants that.
func (a *attempt) republish(ctx context.Context) (err error) {
	if !republishes(a.rules) || a.r.Block {
		return nil
	}
	if a.r.Attach {
		if a.public, err = a.m.o.Attached(ctx, a.r.Driver, a.r.Handle); err != nil {
			return err
		}
	}
	if err := a.stage(ctx); err != nil {
		return err
	}
	request, err := a.request(ctx)
	if err != nil {
		return err
	}
	_, err = a.driver.Node.NodePublishVolume(a.m.ctx, request)
	return err
}

// Sweep unmounts volumes of removed pods in the background, and retries until it succeeds. It must be called once,
// before the first Mount.
func (m *Mounter) Sweep(has func(types.UID) bool) {
	for _, r := range m.list() {
		if has(r.UID) {
			continue
		}
		m.o.Logger.Warn("unmounting a volume of a removed pod", "uid", r.UID, "volume", r.Volume, "driver", r.Driver)
		m.all.Go(func() { m.sweep(r.key()) })
	}
}

func (m *Mounter) sweep(k key) {
	_ = pauses.Until(m.ctx, nil, func() error { return m.Unmount(m.ctx, k.uid, k.volume) }, func(err error) {
		m.o.Logger.Warn("unmounting a volume of a removed pod failed, retrying", "uid", k.uid, "volume", k.volume, "error", err)
	}) // only Close ends it without success
}
