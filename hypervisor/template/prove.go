package template

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// leastProof is the least time that a clone gets to prove its template.
const leastProof = 2 * time.Second

// prove starts a clone, waits for its answer and stores how long that took. A healthy clone needs a small part of the
// time of the boot, on the same host a moment ago, so it gets that time.
func (s *Store) prove(ctx context.Context, t *Template, answer func(context.Context, hypervisor.VM) error, boot time.Duration) error {
	memory, err := t.Memory()
	if err != nil {
		return err
	}
	console, err := os.OpenFile(filepath.Join(s.tmpPath(t.Info.Key), consoleFile), os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer console.Close()
	limit := max(boot, leastProof)
	once, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("%w: a clone did not answer within %v", ErrUnfit, limit.Round(time.Millisecond)))
	defer cancel()
	began := time.Now()
	v, err := s.driver.Clone(once, t.Info.VM, hypervisor.Files{Memory: memory, State: t.State(), Console: console},
		s.options(t.Info.Key, "proof"))
	if err == nil {
		if err = answer(once, v); err != nil {
			err = v.Explain("prove the template by a clone", err)
		}
		t.Info.Answered = time.Since(began)
		err = errors.Join(err, kill(ctx, v))
	}
	switch {
	case err == nil:
		return os.Remove(console.Name())
	case ctx.Err() != nil:
		return err
	case once.Err() != nil:
		return fmt.Errorf("%w (%w)", context.Cause(once), err)
	}
	return fmt.Errorf("%w: %w", ErrUnfit, err)
}
