// Package hostfiles uses open files of a process of the host as the standard streams of a process in a VM.
package hostfiles

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/progress"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/output"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/rawfile"
)

// Files are the open files, of any kind. The process of the host has them too. No flag of them changes.
type Files struct {
	// Terminal replaces the three others for a process with a terminal. Such a process may also have Stdin and Stdout, the
	// two directions of its terminal.
	Terminal *os.File
	// Stdin, Stdout and Stderr may be nil: the stdin is empty then, and the output is discarded.
	Stdin, Stdout, Stderr *os.File
	// Progress is the same for each shim.
	Progress *progress.Set
}

// Close closes the files but Progress.
func (f Files) Close() {
	for _, file := range []*os.File{f.Terminal, f.Stdin, f.Stdout, f.Stderr} {
		if file != nil {
			file.Close()
		}
	}
}

// Targets are the outputs of a process, stdout first.
type Targets [2]*output.Target

// InputBound bounds the bytes of a stdin that the guest has not acknowledged. The progress must also keep a part that
// the feeder is sending, one that it has not sent yet, and the next one.
const InputBound = progress.Ring - 3*progress.StageSize

// Open are files in use. Use returns them.
type Open struct {
	record  *progress.Record
	targets Targets
	in      *rawfile.File // nil without a stdin
	out     [2]*rawfile.File
}

// Use connects outputs to files, and opens the stdin of a process that has one. It takes over the record, unless it
// fails.
func Use(f Files, record *progress.Record, targets Targets, stdin bool) (*Open, error) {
	o := &Open{record: record, targets: targets}
	err := o.open(f, stdin)
	for i, stream := range []progress.Stream{progress.Stdout, progress.Stderr} {
		if err == nil {
			err = targets[i].Connect(o.out[i], record.Output(stream))
		}
	}
	if err != nil {
		o.Disconnect()
		return nil, err
	}
	return o, nil
}

func (o *Open) open(f Files, stdin bool) (err error) {
	in, outs := f.Stdin, [2]*os.File{f.Stdout, f.Stderr}
	if f.Terminal != nil {
		in, outs = f.Terminal, [2]*os.File{f.Terminal}
	}
	if in != nil && stdin {
		if o.in, err = rawfile.New(in, rawfile.ForRead); err != nil {
			return err
		}
	}
	for i, out := range outs {
		if out == nil {
			continue
		}
		if o.out[i], err = rawfile.New(out, rawfile.ForWrite); err != nil {
			return err
		}
	}
	return nil
}

// lastWrite bounds the wait for the last write to a file, to note how much it wrote. A write may hang.
const lastWrite = time.Second

// Disconnect disconnects the outputs, closes the files and ends a Read of the stdin. The progress stays until Close.
func (o *Open) Disconnect() {
	var done []<-chan struct{}
	for _, target := range o.targets {
		done = append(done, target.Disconnect())
	}
	for _, file := range []*rawfile.File{o.in, o.out[0], o.out[1]} {
		if file != nil {
			file.Close()
		}
	}
	late := time.NewTimer(lastWrite)
	defer late.Stop()
	for _, ended := range done {
		select {
		case <-ended:
		case <-late.C:
			return
		}
	}
}

// Close closes the progress, after Disconnect and the last use of the stdin.
func (o *Open) Close() { o.record.Close() }

// Drain ends the stdin when no bytes are waiting in its file. A fifo may have a writer that never closes it.
func (o *Open) Drain() {
	if o.in != nil {
		o.in.Drain()
	}
}

// Input returns the progress of the stdin.
func (o *Open) Input() *progress.Input { return o.record.Input() }

// Stdin returns a reader of the stdin's file. Each of its bytes is kept before Read returns. Without a file the stdin
// is empty.
func (o *Open) Stdin() io.Reader {
	if o.in == nil {
		return io.LimitReader(nil, 0)
	}
	return kept{o.in, o.record.Input()}
}

type kept struct {
	file     *rawfile.File
	progress *progress.Input
}

func (r kept) Read(p []byte) (int, error) {
	return r.file.Do(func(fd int) (int, error) {
		return r.progress.Fill(fd, p, func(p []byte) (int, error) {
			n, err := unix.Read(fd, p)
			if n == 0 && err == nil {
				err = io.EOF
			}
			return max(n, 0), err
		})
	})
}
