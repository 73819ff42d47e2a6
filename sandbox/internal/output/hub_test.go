package output

import "testing"

// TestHubRepeats: a client receives each byte once, even if the agent repeats output after cuts.
func TestHubRepeats(t *testing.T) {
	t.Parallel()
	h := NewHub()
	c := h.Join(false)
	h.send(t.Context(), 0, []byte("abcde"))
	h.send(t.Context(), 2, []byte("cdefg"))
	h.send(t.Context(), 2, []byte("cdefgh"))
	h.send(t.Context(), 0, []byte("abc"))
	h.send(t.Context(), 8, []byte("ij"))
	h.End()
	got := ""
	for data := range c.chunks {
		if len(data) == 0 {
			t.Error("an empty chunk")
		}
		got += string(data)
	}
	if got != "abcdefghij" || h.offset != 10 {
		t.Errorf("%q, then %d", got, h.offset)
	}
}
