package network

import (
	"os"
	"strconv"
)

// pipes creates pipes until that fails once, with err, and closes their files.
type pipes struct {
	files []*os.File
	err   error
}

func (p *pipes) create() (r, w *os.File) {
	if p.err != nil {
		return nil, nil
	}
	if r, w, p.err = os.Pipe(); p.err == nil {
		p.files = append(p.files, r, w)
	}
	return r, w
}

// both returns a pipe that is open in both directions. It has no end of file, and other processes can open it in /proc.
func (p *pipes) both() *os.File {
	r, _ := p.create()
	if p.err != nil {
		return nil
	}
	var f *os.File
	if f, p.err = os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(r.Fd())), os.O_RDWR, 0); p.err == nil {
		p.files = append(p.files, f)
	}
	return f
}

func (p *pipes) close() {
	for _, f := range p.files {
		_ = f.Close() // may be closed already
	}
}
