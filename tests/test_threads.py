import threading

import torch

from halfseen.threads import n_coding_threads, torch_on_one_thread


def test_torch_gets_its_threads_back_and_coding_keeps_them():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with torch_on_one_thread():
            assert torch.get_num_threads() == 1
            assert n_coding_threads() == 2
        assert torch.get_num_threads() == n_coding_threads() == 2
        with torch_on_one_thread(False):
            assert torch.get_num_threads() == 2
        seen = []
        with torch_on_one_thread():  # other threads have their own setting
            other = threading.Thread(target=lambda: seen.append(n_coding_threads()))
            other.start()
            other.join()
        assert seen[0] >= 1
    finally:
        torch.set_num_threads(before)


def test_they_come_back_after_an_error():
    before = torch.get_num_threads()
    try:
        with torch_on_one_thread():
            raise RuntimeError
    except RuntimeError:
        assert torch.get_num_threads() == before
