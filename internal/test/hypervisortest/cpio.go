package hypervisortest

import (
	"bytes"
	"fmt"
)

// archive returns a newc cpio archive of executables.
func archive(programs map[string][]byte) []byte {
	var b bytes.Buffer
	for name, content := range programs {
		entry(&b, name, 0o100755, content)
	}
	entry(&b, "TRAILER!!!", 0, nil)
	return b.Bytes()
}

func entry(b *bytes.Buffer, name string, mode int, content []byte) {
	fmt.Fprintf(b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		b.Len()+1, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	b.WriteString(name)
	b.WriteByte(0)
	pad(b)
	b.Write(content)
	pad(b)
}

func pad(b *bytes.Buffer) {
	for b.Len()%4 != 0 {
		b.WriteByte(0)
	}
}
