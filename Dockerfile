FROM python:3.12-slim
COPY . /src
RUN pip install --no-cache-dir '/src[dask,archive]' && rm -rf /src && useradd --create-home crawler \
    && mkdir /store && chown crawler /store
USER crawler
WORKDIR /project
