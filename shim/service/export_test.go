package service

// Remembered is how many processes the services keep the names of.
func (s *Services) Remembered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.io)
}
