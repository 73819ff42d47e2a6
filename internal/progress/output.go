package progress

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Output is the progress of an output. One goroutine uses it.
type Output struct {
	stage
	offset int64
	staged int64
}

func openOutput(s stage) (o *Output, err error) {
	o = &Output{stage: s}
	o.offset, o.staged, err = s.load()
	return o, err
}

// Offset returns the offset of the first byte that was not passed on.
func (o *Output) Offset() int64 { return o.offset }

// Staged returns the number of bytes from Offset on that are in the stage.
func (o *Output) Staged() int { return int(o.staged) }

// Stage puts the first bytes from Offset on into the stage, which must be empty, and returns their number.
func (o *Output) Stage(data []byte) (int, error) {
	if o.staged > 0 {
		return 0, fmt.Errorf("%w: the stage is in use", errInvalid)
	}
	var n int
	var err error
	ctlErr := control(o.in(), func(fd int) { n, err = unix.Write(fd, data) })
	if err := errors.Join(ctlErr, err); err != nil {
		return 0, fmt.Errorf("fill a stage: %w", err)
	}
	o.staged = int64(n)
	return n, o.store(o.offset, o.staged)
}

// Pass moves bytes from the stage to a descriptor, at most so many, and returns their number. The error is unix.EAGAIN
// if the file has no room, and ErrNoSplice if the caller must use Unstage and Advance instead.
func (o *Output) Pass(to, most int) (int, error) {
	var n int
	var err error
	if ctlErr := control(o.out(), func(fd int) { n, err = splice(fd, nil, to, nil, min(most, int(o.staged))) }); ctlErr != nil {
		return 0, ctlErr
	}
	if errors.Is(err, unix.EAGAIN) {
		if err := o.expect(o.staged); err != nil {
			return 0, err
		}
	}
	o.offset, o.staged = o.offset+int64(n), o.staged-int64(n)
	if n > 0 && o.staged == 0 {
		err = errors.Join(err, o.store(o.offset, 0))
	}
	return n, err
}

// Unstage clears the stage. Its bytes count as not passed on.
func (o *Output) Unstage() error {
	o.staged = 0
	return errors.Join(o.store(o.offset, 0), o.drop())
}

// Advance notes that n bytes were passed on in another way. The stage must be empty.
func (o *Output) Advance(n int) error {
	o.offset += int64(n)
	return o.store(o.offset, 0)
}

// Reset clears the stage and continues at an offset.
func (o *Output) Reset(offset int64) error {
	o.offset = offset
	return o.Unstage()
}
