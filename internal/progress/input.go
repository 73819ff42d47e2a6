package progress

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// Input is the progress of stdin. It keeps the last bytes, because the process in the VM may not have them yet. One
// goroutine uses it.
type Input struct {
	stage
	offset int64 // of the next byte
	plain  bool  // the file does not support splice
}

func openInput(s stage) (i *Input, err error) {
	i = &Input{stage: s}
	var staged int64
	if i.offset, staged, err = s.load(); err == nil {
		err = i.keep(staged)
	}
	return i, err
}

// Offset returns the number of bytes that were read.
func (i *Input) Offset() int64 { return i.offset }

// Last returns the last bytes before Offset, at most Ring.
func (i *Input) Last() ([]byte, error) {
	last := make([]byte, min(i.offset, Ring))
	return last, i.last(last)
}

// at calls f for the parts of p, which begins at an offset, with their places in the memory.
func (i *Input) at(p []byte, offset int64, f func(part []byte, place int64) error) error {
	for len(p) > 0 {
		n := min(int64(len(p)), Ring-offset%Ring)
		if err := f(p[:n], ringOffset+offset%Ring); err != nil {
			return fmt.Errorf("bytes of stdin: %w", err)
		}
		p, offset = p[n:], offset+n
	}
	return nil
}

// Fill reads bytes from a descriptor, at most len(p) and StageSize, and keeps them. The error is io.EOF at the file's
// end, and unix.EAGAIN if no bytes are there. If the file does not support splice, Fill calls read, which must read as
// read(2) does.
func (i *Input) Fill(from int, p []byte, read func(p []byte) (int, error)) (int, error) {
	p = p[:min(len(p), StageSize)]
	if !i.plain {
		n, err := i.splice(from, len(p))
		if err == nil {
			err = i.last(p[:n])
		}
		if !errors.Is(err, ErrNoSplice) {
			return n, err
		}
		i.plain = true
	}
	n, err := read(p)
	if n > 0 {
		if addErr := i.add(p[:n]); addErr != nil {
			return 0, addErr
		}
	}
	return n, err
}

// splice moves bytes to the stage, and from there into the memory.
func (i *Input) splice(from, most int) (int, error) {
	var n int
	var err error
	ctlErr := control(i.in(), func(fd int) { n, err = splice(from, nil, fd, nil, most) })
	if err == nil {
		err = ctlErr
	}
	if errors.Is(err, unix.EAGAIN) {
		if err := i.expect(0); err != nil {
			return 0, err
		}
	}
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, io.EOF
	}
	if err := i.store(i.offset, int64(n)); err != nil {
		return 0, err
	}
	return n, i.keep(int64(n))
}

// keep moves the bytes in the stage into the memory.
func (i *Input) keep(staged int64) error {
	if staged == 0 {
		return nil
	}
	for staged > 0 {
		place := ringOffset + i.offset%Ring
		most := min(staged, Ring-i.offset%Ring)
		var n int
		var err error
		ctlErr := control(i.out(), func(from int) {
			ctlErr := control(i.set[0], func(to int) { n, err = splice(from, nil, to, &place, int(most)) })
			err = errors.Join(err, ctlErr)
		})
		if err = errors.Join(err, ctlErr); err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("keep bytes of stdin: %w", err)
		}
		i.offset, staged = i.offset+int64(n), staged-int64(n)
	}
	return i.store(i.offset, 0)
}

// last reads the last bytes into p.
func (i *Input) last(p []byte) error {
	return i.at(p, i.offset-int64(len(p)), func(part []byte, place int64) error {
		_, err := i.set[0].ReadAt(part, place)
		return err
	})
}

// add keeps bytes that were read without the stage.
func (i *Input) add(p []byte) error {
	err := i.at(p, i.offset, func(part []byte, place int64) error {
		_, err := i.set[0].WriteAt(part, place)
		return err
	})
	if err != nil {
		return err
	}
	i.offset += int64(len(p))
	return i.store(i.offset, 0)
}

// Reset continues at an offset, without bytes before it.
func (i *Input) Reset(offset int64) error {
	i.offset = offset
	return errors.Join(i.drop(), i.store(offset, 0))
}
